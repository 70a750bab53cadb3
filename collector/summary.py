"""What a store says about itself: rows per kind, streams, losses. The same keys as a live collector's status where both know them."""

from pathlib import Path
from typing import Any

import duckdb

from pbkv.events.schema import KINDS


def rows_per_kind(cursor: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Rows of every raw table, by kind."""
    found = cursor.execute(" UNION ALL ".join(f"SELECT '{k.name}', count(*) FROM raw.{k.name}" for k in KINDS)).fetchall()
    return {name: int(count) for name, count in found}


def macros(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    """Names of the table macros a store brings with it."""
    sql = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE NOT internal AND function_type = 'table_macro'"
    return [name for (name,) in cursor.execute(sql).fetchall()]


_SOURCES = """
SELECT s.server, s.epoch, s.rank, coalesce(h.seq, 0) AS seq, coalesce(l.gaps, 0) AS gaps, coalesce(l.lost, 0) AS lost
FROM raw.source s
LEFT JOIN (SELECT src, max(seq) AS seq FROM raw.high_water GROUP BY src) h USING (src)
LEFT JOIN (SELECT src, count(*) AS gaps, sum(messages)::HUGEINT AS lost FROM raw.loss GROUP BY src) l USING (src)
ORDER BY src
"""


def file_status(cursor: duckdb.DuckDBPyConnection, path: Path) -> dict[str, Any]:
    """Counters of a store nobody writes: {"live": False, "db", "db_bytes", "rows", "sources": [...], "gaps", "lost"}."""
    names = ("server", "epoch", "rank", "seq", "gaps", "lost")
    sources = [dict(zip(names, row, strict=True)) for row in cursor.execute(_SOURCES).fetchall()]
    return {
        "live": False,
        "db": str(path),
        "db_bytes": path.stat().st_size,
        "rows": rows_per_kind(cursor),
        "sources": sources,
        "gaps": sum(s["gaps"] for s in sources),
        "lost": sum(s["lost"] for s in sources),
    }
