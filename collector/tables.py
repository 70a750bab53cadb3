"""DDL of the store, made from the event schema: one insert-only table per kind in schema `raw`, and what the collector adds.

Nothing here has a primary key and nothing is ever updated: an update in the ingest transaction would let one long reader
keep every checkpoint from finishing while the write-ahead log grows.
"""

from dataclasses import dataclass
from datetime import datetime

from pbkv.events.schema import DIGEST, KINDS, SCHEMA_VERSION, Field, Kind


@dataclass(frozen=True)
class Column:
    """One column: its DuckDB type, what it says and in which unit."""

    name: str
    sql_type: str
    meaning: str
    unit: str = ""

    @property
    def comment(self) -> str:
        return f"{self.meaning} ({self.unit})" if self.unit else self.meaning


#: Where a record stands; the first columns of every table of a kind. (src, seq, idx) is unique.
POSITION: tuple[Column, ...] = (
    Column("src", "USMALLINT", "stream the record came in; joins raw.source"),
    Column("seq", "UBIGINT", "sequence number of the message, from 1 within a server epoch"),
    Column("idx", "UINTEGER", "position of the record in its message"),
    Column("sched_step", "UBIGINT", "scheduler step of the server at which the message was sent"),
    Column("t", "TIMESTAMP", "wall clock of the server when the message was sent, UTC"),
)

SOURCE: tuple[Column, ...] = (
    Column("src", "USMALLINT", "number of the stream in this store"),
    Column("server", "VARCHAR", "name of the server"),
    Column("epoch", "UBIGINT", "start of the server, ns of its wall clock; every restart is another epoch"),
    Column("rank", "USMALLINT", "tensor-parallel rank"),
    Column("first_t", "TIMESTAMP", "wall clock of the first message seen, UTC"),
)

HIGH_WATER: tuple[Column, ...] = (
    Column("src", "USMALLINT", "stream; joins raw.source"),
    Column("seq", "UBIGINT", "every message up to this one is stored or recorded as lost"),
    Column("t", "TIMESTAMP", "wall clock of the collector at the commit, UTC"),
)

LOSS: tuple[Column, ...] = (
    Column("src", "USMALLINT", "stream; joins raw.source"),
    Column("first_seq", "UBIGINT", "first missing message"),
    Column("last_seq", "UBIGINT", "last missing message"),
    Column("messages", "UBIGINT", "missing messages", "messages"),
    Column("cause", "VARCHAR", "why they cannot be had any more: not held, dropped, no answer, server gone, server restarted"),
    Column("t", "TIMESTAMP", "wall clock of the collector when it gave them up, UTC"),
)

META: tuple[Column, ...] = (
    Column("schema_version", "UINTEGER", "version of the event schema that wrote this file"),
    Column("digest", "VARCHAR", "digest of names, types and codes of the event schema"),
    Column("created", "TIMESTAMP", "creation of the file, UTC"),
)

_FIXED: tuple[tuple[str, str, tuple[Column, ...]], ...] = (
    ("raw.source", "stream of one server epoch and rank", SOURCE),
    ("raw.high_water", "stream and transaction: how far the stream is stored", HIGH_WATER),
    ("raw.loss", "range of messages that were lost", LOSS),
    ("meta", "schema that wrote this file", META),
)


def field_column(field: Field) -> Column:
    """Column of a kind's own field, ids and codes as they came."""
    meaning = field.meaning
    if field.ref is not None:
        meaning += f"; id of a {field.ref.name.lower()} name"
    if field.values:
        meaning += "; " + ", ".join(f"{n} = {v}" for n, v in enumerate(field.values))
    return Column(field.name, field.sql_type, meaning, field.unit)


def kind_columns(kind: Kind) -> tuple[Column, ...]:
    """Columns of raw.<kind>: the record's position, then its fields."""
    return (*POSITION, *(field_column(f) for f in kind.fields))


def quoted(text: str) -> str:
    """`text` as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def comments(what: str, name: str, row: str, columns: tuple[Column, ...]) -> list[str]:
    """COMMENT ON statements of a TABLE or VIEW and its columns."""
    lines = [f"COMMENT ON {what} {name} IS {quoted('one row per ' + row)}"]
    return lines + [f"COMMENT ON COLUMN {name}.{c.name} IS {quoted(c.comment)}" for c in columns]


def _create(name: str, row: str, columns: tuple[Column, ...]) -> list[str]:
    body = ", ".join(f"{c.name} {c.sql_type}" for c in columns)
    return [f"CREATE TABLE {name} ({body})", *comments("TABLE", name, row, columns)]


def create_statements(created: datetime) -> list[str]:
    """Statements that make an empty store: raw tables and the row of `meta`. `created` is naive UTC."""
    statements = ["CREATE SCHEMA raw"]
    for name, row, columns in _FIXED:
        statements += _create(name, row, columns)
    for kind in KINDS:
        statements += _create(f"raw.{kind.name}", kind.row, kind_columns(kind))
    meta = f"INSERT INTO meta VALUES ({SCHEMA_VERSION}, '{DIGEST.hex()}', TIMESTAMP '{created.isoformat(' ')}')"
    return [*statements, meta]
