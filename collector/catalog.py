"""The views of the database in memory: schema `raw` over what is attached as `store` and over the archive, and the views for people.

Every source has all tables and columns of this release: what an older file lacks is NULL or empty, and rollups that were never made
are computed from the events when they are asked for.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import duckdb

from collector.columns import Column, comments, quoted
from collector.macros import macro_statements
from collector.migrate import Present, present
from collector.names import view_statements
from collector.rollup import ROLLUPS, WIDTHS
from collector.tables import META, raw_tables
from pbkv.events.schema import EVENT_KINDS


@dataclass(frozen=True)
class Cold:
    """Parquet files of one table that have the same columns, and the time of the newest row in them."""

    columns: frozenset[str]
    files: tuple[Path, ...]
    last_t: datetime


@dataclass(frozen=True)
class Sources:
    """What the views put together.

    `cold`: archived files by table. `hidden`: per stream, the message up to which events of the store are left out because `cold` has
    them too. `rolled`: per width and stream, the message up to which the store's rollups are made; later ones are computed; None = all
    are made.
    """

    cold: Mapping[str, Sequence[Cold]] = field(default_factory=dict[str, Sequence[Cold]])
    hidden: Mapping[int, int] = field(default_factory=dict[int, int])
    rolled: Mapping[int, Mapping[int, int]] | None = None


def install(db: duckdb.DuckDBPyConnection, sources: Sources, *, attached: bool = True) -> None:
    """Make all views. `attached`: the database has a `store`."""
    statements = ["CREATE SCHEMA raw", *_raw_views(db, sources, tuple(raw_tables()), attached)]
    statements += [*([] if attached else _held()), *_meta(attached), *view_statements(), *macro_statements()]
    db.execute("; ".join(["BEGIN", *statements, "COMMIT"]))


#: What every segment of an archive repeats -> what is unique in it.
_REPEATED: dict[str, str] = {"source": "src", "name": "src, id"}


def _held() -> list[str]:
    """Streams and names of an archive, once each and in memory: nearly every query joins them."""
    statements: list[str] = []
    for name, unique in _REPEATED.items():
        statements.append(f"CREATE TABLE held_{name} AS SELECT DISTINCT ON ({unique}) * FROM raw.{name}")
        statements.append(f"CREATE OR REPLACE VIEW raw.{name} AS FROM held_{name}")
    return statements


def swap(db: duckdb.DuckDBPyConnection, sources: Sources) -> None:
    """Replace the views of events in one transaction: a query sees either all old ones or all new ones."""
    db.execute("; ".join(["BEGIN", *_raw_views(db, sources, EVENT_KINDS, True), "COMMIT"]))


def _raw_views(db: duckdb.DuckDBPyConnection, sources: Sources, names: Sequence[str], attached: bool) -> list[str]:
    have = present(db, "store") if attached else {}
    tables = raw_tables()
    return [f"CREATE OR REPLACE VIEW raw.{name} AS {_branches(name, tables[name][1], have, sources)}" for name in names]


def _branches(name: str, columns: tuple[Column, ...], have: Present, sources: Sources) -> str:
    branches: list[str] = []
    if name in have:
        where = _hidden(sources.hidden) if name in EVENT_KINDS else ""
        branches.append(f"SELECT {_projection(columns, have[name])} FROM store.raw.{name}{where}")
    branches += [_cold(columns, cold, has_time=any(c.name == "t" for c in columns)) for cold in sources.cold.get(name, ())]
    branches += _computed(name, have, sources)
    return " UNION ALL ".join(branches) or f"SELECT {_projection(columns, {})} WHERE false"


def _projection(columns: tuple[Column, ...], have: Container[str]) -> str:
    return ", ".join(c.name if c.name in have else f"NULL::{c.sql_type} AS {c.name}" for c in columns)


def _hidden(hidden: Mapping[int, int]) -> str:
    return f" WHERE {_behind(hidden)}" if hidden else ""


def _behind(marks: Mapping[int, int]) -> str:
    """Condition: the message is behind the mark of its stream."""
    cases = " ".join(f"WHEN {src:d} THEN {seq:d}" for src, seq in marks.items())
    return f"seq > CASE src {cases} ELSE 0 END" if cases else "true"


def _cold(columns: tuple[Column, ...], cold: Cold, *, has_time: bool) -> str:
    files = ", ".join(quoted(str(path)) for path in cold.files)
    # Against a constant, the planner sees by itself that a query for later times wants nothing from here, and opens no file.
    where = f" WHERE t <= TIMESTAMP {quoted(str(cold.last_t))}" if has_time else ""
    return f"SELECT {_projection(columns, cold.columns)} FROM read_parquet([{files}]){where}"


def _computed(name: str, have: Present, sources: Sources) -> list[str]:
    """Rollups of events that no stored rollup covers."""
    if sources.rolled is None or not name.startswith("roll_") or "call" not in have:
        return []
    return [r.from_events("max(seq)" if r.name != "accuracy" else "0::UBIGINT", width, _behind(sources.rolled.get(width, {})))
            for r in ROLLUPS for suffix, width in WIDTHS.items() if r.table(suffix) == name]


def _meta(attached: bool) -> list[str]:
    if not attached:
        return []
    columns = ", ".join(c.name for c in META[:3])
    return [f"CREATE OR REPLACE VIEW meta AS SELECT {columns} FROM store.main.meta", *comments("VIEW", "meta", "schema", META[:3])]
