"""DDL of the store, made from the event schema: one insert-only table per kind in schema `raw`, and what the collector adds.

Nothing here has a primary key, and the ingest transaction only inserts: an update in it would let one long reader keep every checkpoint
from finishing while the write-ahead log grows.
"""

import json
from datetime import datetime

from collector.columns import Column, comments, quoted
from collector.rollup import rollup_tables
from pbkv.events.schema import DIGEST, KINDS, SCHEMA_VERSION, Field, Kind, manifest

#: Version of what the collector adds to the event tables: 1 had neither rollups nor segments.
STORE_VERSION = 2

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
    Column("rank", "USMALLINT", "data-parallel replica, 0 with one"),
    Column("first_t", "TIMESTAMP", "wall clock of the first message seen, UTC"),
)

HIGH_WATER: tuple[Column, ...] = (
    Column("src", "USMALLINT", "stream; joins raw.source"),
    Column("seq", "UBIGINT", "every message up to this one is stored or recorded as lost"),
    Column("t", "TIMESTAMP", "wall clock of the collector at the commit, UTC"),
    Column("records", "UBIGINT", "events of the stream in the transaction; NULL = not counted", "events"),
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
    Column("store_version", "UINTEGER", "version of what the collector adds to the event tables"),
    Column("manifest", "VARCHAR", "the event schema as JSON, as GET /pbkv/schema serves it"),
)

ROLLED: tuple[Column, ...] = (
    Column("src", "USMALLINT", "stream; joins raw.source"),
    Column("width_s", "USMALLINT", "width of the rollup rows", "s"),
    Column("seq", "UBIGINT", "every message up to this one is in the rollups of that width"),
)

CUT: tuple[Column, ...] = (
    Column("src", "USMALLINT", "stream; joins raw.source"),
    Column("seq", "UBIGINT", "events of messages up to this one have left the tables"),
    Column("segment", "UINTEGER", "segment of the archive they went to; 0 = they were dropped"),
    Column("t", "TIMESTAMP", "wall clock of the collector, UTC"),
)

#: Tables besides the kinds: name -> (what a row is, columns).
FIXED: dict[str, tuple[str, tuple[Column, ...]]] = {
    "source": ("stream of one server epoch and rank", SOURCE),
    "high_water": ("stream and transaction: how far the stream is stored", HIGH_WATER),
    "loss": ("range of messages that were lost", LOSS),
    "rolled": ("stream, width and run: how far the rollups are made", ROLLED),
    "cut": ("stream and run: how far events have left for the archive", CUT),
}


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


def create_table(name: str, row: str, columns: tuple[Column, ...]) -> list[str]:
    """Statements that make an empty table with its comments."""
    body = ", ".join(f"{c.name} {c.sql_type}" for c in columns)
    return [f"CREATE TABLE {name} ({body})", *comments("TABLE", name, row, columns)]


def raw_tables() -> dict[str, tuple[str, tuple[Column, ...]]]:
    """Name of every table of schema raw -> (what a row is, columns)."""
    return {**FIXED, **{k.name: (k.row, kind_columns(k)) for k in KINDS}, **rollup_tables()}


def create_statements(created: datetime) -> list[str]:
    """Statements that make an empty store: raw tables and the row of `meta`. `created` is naive UTC."""
    statements = ["CREATE SCHEMA raw"]
    for name, (row, columns) in raw_tables().items():
        statements += create_table(f"raw.{name}", row, columns)
    return [*statements, *create_table("meta", "schema that wrote this file", META), meta_row(created)]


def meta_row(created: datetime) -> str:
    """INSERT of the row of `meta` that this release writes."""
    at = f"TIMESTAMP '{created.isoformat(' ')}'"
    return f"INSERT INTO meta VALUES ({SCHEMA_VERSION}, '{DIGEST.hex()}', {at}, {STORE_VERSION}, {quoted(json.dumps(manifest()))})"
