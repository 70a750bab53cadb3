"""The folder that events go to when they leave the database: written by the one collector that owns it, readable by anyone."""

import fcntl
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from collector.catalog import Cold
from collector.columns import quoted
from collector.rollup import ROLLUPS, WIDTHS
from collector.segment import Segment, Table, load_segments, publish, write_manifest
from collector.tables import raw_tables
from pbkv.errors import UsageError
from pbkv.events.schema import BY_NAME, EVENT_KINDS, SCHEMA_VERSION, Namespace

#: Segments one archive may have; each is a file per table that a query over all time must open.
MAX_SEGMENTS = 4096
_WRITING = ".writing"

#: (kind, column) of every id of a workflow.
WORKFLOW_COLUMNS: tuple[tuple[str, str], ...] = tuple(
    (kind, f.name) for kind in EVENT_KINDS for f in BY_NAME[kind].fields if f.ref == Namespace.WORKFLOW
)

Marks = Mapping[int, tuple[int, int]]


class Archive:
    """An archive open for writing. `owner` names the database; a folder belongs to one database for ever."""

    def __init__(self, folder: Path, owner: str) -> None:
        """Make or open `folder`. Raises UsageError: not a folder, of another database, in use, damaged."""
        self.folder, self.owner = folder, owner
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(f"archive {str(folder)!r}: cannot be used ({error.strerror}); name another folder") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.segments = load_segments(folder)
            if any(segment.owner != owner for segment in self.segments):
                raise UsageError(f"archive {str(folder)!r}: belongs to another database; name another folder")
        except OSError:
            os.close(self._lock)
            raise UsageError(f"archive {str(folder)!r}: in use by another collector; name another folder") from None
        except BaseException:
            os.close(self._lock)
            raise
        shutil.rmtree(folder / _WRITING, ignore_errors=True)

    def close(self) -> None:
        """Let another collector have it."""
        os.close(self._lock)

    def orphans(self, known: Collection[int]) -> list[Segment]:
        """The segment that the database, which has cut off the segments `known`, does not know of: written just before a crash, its events
        are still in the tables. Raises UsageError when the database is older than the folder, as after a restored backup."""
        unknown = [s for s in self.segments if s.id not in known]
        if len(unknown) > 1 or any(s.id <= max(known, default=0) for s in unknown):
            raise UsageError(
                f"archive {str(self.folder)!r}: has {len(unknown)} segments that the database does not know of; name another folder, or "
                "restore the newer database"
            )
        return unknown

    def write(self, db: duckdb.DuckDBPyConnection, number: int, marks: Marks) -> Segment:
        """Write the events of `marks` (per stream, messages after..upto) as segment `number`. Nothing is deleted from the database.

        Raises OSError and duckdb.Error, for example when the disk is full; the folder is then as before.
        """
        folder = self.folder / _WRITING
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            made = datetime.now(UTC).replace(tzinfo=None).isoformat(" ")
            tables = {name: _write(db, folder, name, select) for name, select in _selects(marks, made).items()}
            text_marks = {str(src): mark for src, mark in marks.items()}
            segment = Segment(number, self.owner, SCHEMA_VERSION, made, text_marks, {n: t for n, t in tables.items() if t.rows})
            write_manifest(folder, segment)
            publish(folder, self.folder / segment.folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.segments.append(segment)
        return segment

    def remove(self, segments: Iterable[Segment]) -> None:
        """Delete segments from the folder. One that is half deleted after a crash has lost its manifest first and counts for nothing."""
        for segment in segments:
            path = self.folder / segment.folder
            (path / "manifest.json").unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
            self.segments.remove(segment)


def cold_tables(folder: Path, segments: Iterable[Segment], tables: Iterable[str]) -> dict[str, list[Cold]]:
    """What a catalog needs to show `tables` of `segments`."""
    found: dict[str, dict[frozenset[str], list[tuple[Path, str]]]] = {}
    for segment in segments:
        for name in tables:
            if (table := segment.tables.get(name)) is not None:
                path = (folder / segment.folder / f"{name}.parquet").resolve()
                found.setdefault(name, {}).setdefault(frozenset(table.columns), []).append((path, table.last_t))
    return {
        name: [Cold(columns, tuple(p for p, _ in files), _latest(t for _, t in files)) for columns, files in groups.items()]
        for name, groups in found.items()
    }


def _latest(times: Iterable[str]) -> datetime:
    return max((datetime.fromisoformat(t) for t in times if t), default=datetime.max)


def _selects(marks: Marks, made: str) -> dict[str, str]:
    """SELECT of what goes into each file of a segment."""
    rows = " OR ".join(f"(src = {src:d} AND seq > {after:d} AND seq <= {upto:d})" for src, (after, upto) in marks.items())
    sources = ", ".join(f"{src:d}" for src in marks)
    selects = {kind: f"SELECT * FROM store.raw.{kind} WHERE {rows}" for kind in EVENT_KINDS}
    for rollup in ROLLUPS:
        for suffix, width in WIDTHS.items():
            upto = "0::UBIGINT" if rollup.name == "accuracy" else "max(seq)"
            selects[rollup.table(suffix)] = rollup.from_events(upto, width, f"({rows})", f"src IN ({sources})")
    selects["source"] = f"SELECT * FROM store.raw.source WHERE src IN ({sources})"
    ends = ", ".join(f"({src:d}, {upto:d})" for src, (_, upto) in marks.items())
    selects["high_water"] = f"""SELECT src::USMALLINT AS src, seq::UBIGINT AS seq, NULL::UBIGINT AS records, TIMESTAMP '{made}' AS t
        FROM (VALUES {ends}) v(src, seq)"""
    selects["loss"] = f"SELECT * FROM store.raw.loss WHERE {rows.replace('seq', 'last_seq')}"
    selects["name"] = f"SELECT * FROM store.raw.name n WHERE src IN ({sources}) AND ({_used(rows)})"
    return selects


def _used(rows: str) -> str:
    """Condition on raw.name: not a workflow, or one that the events name."""
    ids = " UNION ".join(f"SELECT src, {column} FROM store.raw.{kind} WHERE {rows}" for kind, column in WORKFLOW_COLUMNS)
    return f"namespace <> {int(Namespace.WORKFLOW)} OR (src, id) IN ({ids})"


def _write(db: duckdb.DuckDBPyConnection, folder: Path, name: str, select: str) -> Table:
    columns = tuple(c.name for c in raw_tables()[name][1])
    path = folder / f"{name}.parquet"
    db.execute(f"COPY ({select}) TO {quoted(str(path))} (FORMAT parquet, COMPRESSION zstd)")
    last = "max(t)" if "t" in columns else "NULL"
    row = db.execute(f"SELECT count(*), {last} FROM read_parquet({quoted(str(path))})").fetchone()
    rows, last_t = (int(row[0]), row[1]) if row else (0, None)
    if not rows:
        path.unlink()
    return Table(rows, path.stat().st_size if rows else 0, columns, last_t.isoformat(" ") if last_t else "")
