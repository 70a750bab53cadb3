"""What a store says about itself: rows per kind, streams, losses. The same keys as a live collector's status where both know them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from collector.segment import Segment
from pbkv.events.schema import KINDS


def rows_per_kind(cursor: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Rows of every raw table, by kind."""
    found = cursor.execute(" UNION ALL ".join(f"SELECT '{k.name}', count(*) FROM raw.{k.name}" for k in KINDS)).fetchall()
    return {name: int(count) for name, count in found}


_SOURCES = """
SELECT s.server, s.epoch, s.rank, coalesce(h.seq, 0) AS seq, coalesce(l.gaps, 0) AS gaps, coalesce(l.lost, 0) AS lost
FROM raw.source s
LEFT JOIN (SELECT src, max(seq) AS seq FROM raw.high_water GROUP BY src) h USING (src)
LEFT JOIN (SELECT src, count(*) AS gaps, sum(messages)::HUGEINT AS lost FROM raw.loss GROUP BY src) l USING (src)
ORDER BY src
"""


def _status(cursor: duckdb.DuckDBPyConnection, path: Path, size: int) -> dict[str, Any]:
    names = ("server", "epoch", "rank", "seq", "gaps", "lost")
    sources = [dict(zip(names, row, strict=True)) for row in cursor.execute(_SOURCES).fetchall()]
    return {
        "live": False,
        "db": str(path),
        "db_bytes": size,
        "rows": rows_per_kind(cursor),
        "sources": sources,
        "gaps": sum(s["gaps"] for s in sources),
        "lost": sum(s["lost"] for s in sources),
    }


def file_status(cursor: duckdb.DuckDBPyConnection, path: Path) -> dict[str, Any]:
    """Counters of a store nobody writes: {"live": False, "db", "db_bytes", "rows", "sources": [...], "gaps", "lost"}."""
    return _status(cursor, path, path.stat().st_size)


def archive_status(cursor: duckdb.DuckDBPyConnection, folder: Path, segments: Sequence[Segment]) -> dict[str, Any]:
    """The same of an archive, and its segments."""
    status = _status(cursor, folder, sum(s.bytes for s in segments))
    return {**status, "segments": len(segments), "schema_version": max(s.schema_version for s in segments)}


def lake_status(cursor: duckdb.DuckDBPyConnection, source: str) -> dict[str, Any]:
    """The same of a lake; its size is that of its Parquet files."""
    row = cursor.execute("SELECT sum(file_size_bytes) FROM ducklake_table_info('store')").fetchone()
    return _status(cursor, Path(source), int(row[0]) if row and row[0] else 0)
