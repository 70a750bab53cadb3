"""Bringing a store of an earlier release up to this one, and refusing one that cannot be.

Tables and columns are only ever added. What an earlier release did not record is NULL; the numbers behind an enumeration never change
their meaning, which is checked against the schema the file carries.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from collector.columns import Column, comments
from collector.names import view_statements
from collector.tables import META, STORE_VERSION, create_statements, create_table, meta_row, raw_tables
from pbkv.errors import UsageError
from pbkv.events.schema import BY_NAME, DIGEST, SCHEMA_VERSION

Present = dict[str, dict[str, str]]


def prepare(db: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Make an empty database a store, and one of an earlier release this release's. Raises UsageError for one that can be neither."""
    row = db.execute("SELECT count(*) FROM duckdb_tables()").fetchone()
    now = datetime.now(UTC).replace(tzinfo=None)
    if not row or not row[0]:
        _run(db, [*create_statements(now), *view_statements()])
        return
    version, digest, store_version = versions(db, path)
    if (digest, store_version) != (DIGEST.hex(), STORE_VERSION):
        _check_codes(db, path, version, store_version)
        _run(db, [*_additions(path, present(db)), *_new_meta(db), *view_statements()])


def versions(db: duckdb.DuckDBPyConnection, path: Path, schema: str = "main") -> tuple[int, str, int]:
    """(event schema, its digest, store version). Raises UsageError: no store of ours, or one of a newer release. `schema` holds meta."""
    try:
        row = db.execute(f"SELECT schema_version, digest FROM {schema}.meta").fetchone()
    except duckdb.Error:
        row = None
    if row is None:
        raise UsageError(f"database {str(path)!r}: a DuckDB file, but not an event store; name one written by `pbkv collect`")
    try:
        found = db.execute(f"SELECT store_version FROM {schema}.meta").fetchone()
    except duckdb.Error:
        found = None
    version, store_version = int(row[0]), int(found[0]) if found and found[0] else 1
    if version > SCHEMA_VERSION or store_version > STORE_VERSION:
        raise UsageError(
            f"database {str(path)!r}: event schema {version}, store {store_version}, is newer than this release's {SCHEMA_VERSION} and "
            f"{STORE_VERSION}; use a release of this package that has them"
        )
    return version, str(row[1]), store_version


def present(db: duckdb.DuckDBPyConnection, database: str | None = None) -> Present:
    """Columns and their types, by table, of schema raw of `database` (default: the current one)."""
    where = "database_name = " + (f"'{database}'" if database else "current_database()")
    sql = f"SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE schema_name = 'raw' AND {where} ORDER BY ALL"
    found: Present = {}
    for table, column, sql_type in db.execute(sql).fetchall():
        found.setdefault(table, {})[column] = sql_type
    return found


def _additions(path: Path, have: Present) -> list[str]:
    """Statements that add what this release has and the file has not, and say of every column what this release means by it."""
    statements: list[str] = []
    for name, (row, columns) in raw_tables().items():
        if name not in have:
            statements += create_table(f"raw.{name}", row, columns)
        else:
            statements += [s for c in columns for s in _add(path, name, c, have[name].get(c.name))]
            statements += comments("TABLE", f"raw.{name}", row, columns)
    return statements


def _add(path: Path, table: str, column: Column, sql_type: str | None) -> list[str]:
    if sql_type is None:
        return [f"ALTER TABLE raw.{table} ADD COLUMN {column.name} {column.sql_type}"]
    if sql_type != column.sql_type:
        raise UsageError(
            f"database {str(path)!r}: raw.{table}.{column.name} is {sql_type}, this release writes {column.sql_type}; "
            "collect into a new file"
        )
    return []


def _new_meta(db: duckdb.DuckDBPyConnection) -> list[str]:
    row = db.execute("SELECT created FROM meta").fetchone()
    created = row[0] if row and row[0] else datetime.now(UTC).replace(tzinfo=None)
    return ["DROP TABLE meta", *create_table("meta", "schema that wrote this file", META), meta_row(created)]


def _check_codes(db: duckdb.DuckDBPyConnection, path: Path, version: int, store_version: int) -> None:
    """Every code of the file must still mean the same. Files of store version 1 carry no schema; event schema 1 had one digest only."""
    if store_version == 1:
        return
    row = db.execute("SELECT manifest FROM meta").fetchone()
    kinds: dict[str, Any] = json.loads(row[0])["kinds"] if row and row[0] else {}
    for name, kind in kinds.items():
        for field in kind["fields"]:
            _check_field(path, version, name, field)


def _check_field(path: Path, version: int, kind: str, field: dict[str, Any]) -> None:
    mine = {f.name: f for f in BY_NAME[kind].fields} if kind in BY_NAME else {}
    if field["name"] not in mine:
        return
    old, new = tuple(field["values"]), mine[field["name"]].values
    if new[: len(old)] != old:
        raise UsageError(
            f"database {str(path)!r}: codes of {kind}.{field['name']} of event schema {version} mean something else in {SCHEMA_VERSION}; "
            "collect into a new file"
        )


def _run(db: duckdb.DuckDBPyConnection, statements: list[str]) -> None:
    # One transaction: a crash in the middle leaves the file as the earlier release wrote it.
    db.execute("; ".join(["BEGIN", *statements, "COMMIT"]))
