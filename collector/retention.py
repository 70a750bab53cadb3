"""What leaves the database and when: by age and by size, into the archive or for good.

Age is that of the commit on the collector's clock, so a server whose clock jumps loses nothing and keeps nothing. The order of steps
makes it safe: the segment is on the disk, then queries see it instead of the rows, then one transaction deletes the rows and notes the
cut. A crash anywhere leaves every event in exactly one place that counts.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from collector.archive import MAX_SEGMENTS, WORKFLOW_COLUMNS, Archive, Marks, cold_tables
from collector.catalog import Sources
from collector.rollup import ROLLUPS
from collector.segment import Segment
from collector.store import Store
from pbkv.events.schema import EVENT_KINDS, Namespace

#: Rollups stay this long in the database after their events have left, seconds by the suffix of their tables.
ROLLUP_S: dict[str, float] = {"1s": 14 * 86_400.0, "1m": 400 * 86_400.0}
#: Files of a removed segment stay for queries that have begun, seconds: longer than any query may run.
_LINGER_S = 60.0
#: Between showing a segment and deleting its rows, seconds: a query that was being planned has its snapshot by then.
_SETTLE_S = 0.2


#: What age events may reach beyond their limit before they leave together, as a share of it.
_SLACK = 1 / 8
#: High-water rows with how far their stream is cut off.
_OPEN = """store.raw.high_water h LEFT JOIN (SELECT src, max(seq) AS seq FROM store.raw.cut GROUP BY src) c USING (src)"""


@dataclass(frozen=True)
class Retention:
    """Limits. Seconds and bytes; None = no limit of that kind. Without `archive` what leaves is dropped."""

    archive: Path | None = None
    keep_s: float | None = None
    keep_bytes: int | None = 32 << 30
    archive_keep_s: float | None = None
    archive_bytes: int | None = None


class Keeper:
    """Applies a `Retention` to a store. One thread; `db` is a cursor of its own."""

    def __init__(self, store: Store, retention: Retention, *, settle_s: float = _SETTLE_S) -> None:
        """Raises UsageError when the archive cannot be used with this store."""
        self._store, self._limits, self._settle_s = store, retention, settle_s
        self._leaving: list[tuple[float, Segment]] = []
        self.archive: Archive | None = None
        self.segments = self.events_out = 0
        if retention.archive is not None:
            self._open_archive(retention.archive)

    def _open_archive(self, folder: Path) -> None:
        with self._store.cursor() as db:
            row = db.execute("SELECT created FROM store.main.meta").fetchone()
            self.archive = Archive(folder, str(row[0]) if row else "")
            try:
                self._reconcile(db)
                self._show({})
            except BaseException:
                self.archive.close()
                raise

    def _reconcile(self, db: duckdb.DuckDBPyConnection) -> None:
        """Remove the segment of an attempt that did not get as far as deleting its events."""
        if self.archive is None:
            return
        known = {n for (n,) in db.execute("SELECT DISTINCT segment FROM store.raw.cut WHERE segment > 0").fetchall()}
        orphans = self.archive.orphans(known)
        if orphans:
            self._show({}, without=orphans)
            self.archive.remove(orphans)

    def status(self) -> dict[str, Any] | None:
        """{"folder", "segments", "bytes", "events"} of the archive, None without one; for any thread."""
        if self.archive is None:
            return None
        segments = list(self.archive.segments)
        return {
            "folder": str(self.archive.folder), "segments": len(segments), "bytes": sum(s.bytes for s in segments),
            "events": sum(s.rows for s in segments),
        }

    def close(self) -> None:
        """Give the archive free."""
        if self.archive is not None:
            self.archive.close()

    def turn(self, done: Mapping[int, int], now: float) -> bool:
        """Apply the limits once. `done`: per stream, the message up to which rollups are made; nothing later leaves. `now`: seconds since
        1970. True when something left. Raises duckdb.Error, OSError, PbkvError; it is then simply tried again at the next turn."""
        with self._store.cursor() as db:
            self._reconcile(db)
            self._remove_old_segments(db, now)
            marks = self._due(db, done, now)
            if marks:
                self._cut(db, marks, now)
            return bool(marks)

    def _due(self, db: duckdb.DuckDBPyConnection, done: Mapping[int, int], now: float) -> Marks:
        """Per stream, the messages to cut off: those past their age, or the oldest while the database is too large."""
        until = self._aged(db, now)
        if self._limits.keep_bytes is not None and (used := used_bytes(db)) > self._limits.keep_bytes:
            oldest = _time_of_share(db, 1 - 0.75 * self._limits.keep_bytes / used)
            until = max(until, oldest) if until and oldest else until or oldest
        if until is None:
            return {}
        sql = f"SELECT h.src, coalesce(any_value(c.seq), 0), max(h.seq) FROM {_OPEN} WHERE h.t <= $until GROUP BY h.src"
        found = db.execute(sql, {"until": until}).fetchall()
        return {src: (after, upto) for src, after, seq in found if (upto := min(seq, done.get(src, 0))) > after}

    def _aged(self, db: duckdb.DuckDBPyConnection, now: float) -> datetime | None:
        """Commit time up to which events are too old, or None while the oldest is only a little too old: few segments, not thousands."""
        keep_s = self._limits.keep_s
        if keep_s is None:
            return None
        row = db.execute(f"SELECT min(h.t) FROM {_OPEN} WHERE h.seq > coalesce(c.seq, 0)").fetchone()
        return _utc(now - keep_s) if row and row[0] and row[0] < _utc(now - keep_s * (1 + _SLACK)) else None

    def _cut(self, db: duckdb.DuckDBPyConnection, marks: Marks, now: float) -> None:
        segment = None
        if self.archive is not None:
            row = db.execute("SELECT coalesce(max(segment), 0) FROM store.raw.cut").fetchone()
            segment = self.archive.write(db, (row[0] if row else 0) + 1, marks)
            self.segments += 1
            self._show({src: upto for src, (_, upto) in marks.items()})
            time.sleep(self._settle_s)
        self.events_out += self._delete(db, marks, segment.id if segment else 0, now)
        if segment is not None:
            self._show({})
        else:
            self._drop_names(db, {src: upto for src, (_, upto) in marks.items()})

    def _delete(self, db: duckdb.DuckDBPyConnection, marks: Marks, segment: int, now: float) -> int:
        count = 0
        db.execute("BEGIN")
        try:
            for src, (_, upto) in marks.items():
                for kind in EVENT_KINDS:
                    row = db.execute(f"DELETE FROM store.raw.{kind} WHERE src = {src:d} AND seq <= {upto:d}").fetchone()
                    count += int(row[0]) if row else 0
                db.execute("INSERT INTO store.raw.cut (src, seq, segment, t) VALUES (?, ?, ?, ?)", [src, upto, segment, _utc(now)])
                self._thin(db, src, upto, now)
            db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(duckdb.Error):  # DuckDB may have ended the transaction itself
                db.execute("ROLLBACK")
            raise
        return count

    @staticmethod
    def _thin(db: duckdb.DuckDBPyConnection, src: int, upto: int, now: float) -> None:
        """Of the notes on how far a stream is, the newest is enough. Rollups go by the time of the cut that their events left with."""
        db.execute(f"DELETE FROM store.raw.high_water WHERE src = {src:d} AND seq < {upto:d}")
        db.execute(f"DELETE FROM store.raw.rolled WHERE src = {src:d} AND seq < {upto:d}")
        for suffix, keep_s in ROLLUP_S.items():
            row = db.execute("SELECT max(seq) FROM store.raw.cut WHERE src = ? AND t < ?", [src, _utc(now - keep_s)]).fetchone()
            last = int(row[0]) if row and row[0] else 0
            for rollup in ROLLUPS if last else ():
                db.execute(f"DELETE FROM store.raw.{rollup.table(suffix)} WHERE src = {src:d} AND seq <= {last}")

    def _drop_names(self, db: duckdb.DuckDBPyConnection, gone: Mapping[int, int]) -> None:
        """Names of workflows that came with events that are `gone` for good, and that nothing mentions any more."""
        for src, upto in gone.items():
            used = " UNION ".join(f"SELECT {column} FROM raw.{kind} WHERE src = {src:d}" for kind, column in WORKFLOW_COLUMNS)
            where = f"src = {src:d} AND namespace = {int(Namespace.WORKFLOW)} AND seq <= {upto:d} AND id NOT IN ({used})"
            names = {n for (n,) in db.execute(f"DELETE FROM store.raw.name WHERE {where} RETURNING id").fetchall()}
            self._store.forget_names(src, names)

    def _show(self, hidden: Mapping[int, int], without: Sequence[Segment] = ()) -> None:
        if self.archive is not None:
            shown = [segment for segment in self._shown() if segment not in without]
            self._store.show(Sources(cold=cold_tables(self.archive.folder, shown, EVENT_KINDS), hidden=hidden))

    def _shown(self) -> list[Segment]:
        leaving = [segment.id for _, segment in self._leaving]
        return [s for s in self.archive.segments if s.id not in leaving] if self.archive else []

    def _remove_old_segments(self, db: duckdb.DuckDBPyConnection, now: float) -> None:
        """First no query sees a segment any more, and a minute later its files go."""
        if self.archive is None:
            return
        self.archive.remove([segment for at, segment in self._leaving if now >= at + _LINGER_S])
        self._leaving = [(at, segment) for at, segment in self._leaving if now < at + _LINGER_S]
        old = self._too_many(self._shown(), now)
        if old:
            self._leaving += [(now, segment) for segment in old]
            self._show({})
            self._drop_names(db, {int(src): upto for segment in old for src, (_, upto) in segment.marks.items()})

    def _too_many(self, segments: list[Segment], now: float) -> list[Segment]:
        limits = self._limits
        size = sum(s.bytes for s in segments)
        old: list[Segment] = []
        for n, segment in enumerate(segments):
            aged = limits.archive_keep_s is not None and datetime.fromisoformat(segment.made) < _utc(now - limits.archive_keep_s)
            if not (aged or (limits.archive_bytes is not None and size > limits.archive_bytes) or len(segments) - n > MAX_SEGMENTS):
                break
            old.append(segment)
            size -= segment.bytes
        return old


def used_bytes(db: duckdb.DuckDBPyConnection) -> int:
    """Bytes of the store that hold something; the file itself may be larger after rows have left."""
    row = db.execute("SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = 'store'").fetchone()
    return int(row[0]) if row else 0


def _time_of_share(db: duckdb.DuckDBPyConnection, share: float) -> datetime | None:
    """Commit time up to which `share` of the messages that are still there were stored."""
    sql = f"""WITH m AS (SELECT h.t, h.seq - coalesce(lag(h.seq) OVER (PARTITION BY h.src ORDER BY h.seq), c.seq, 0) AS n
        FROM {_OPEN} WHERE h.seq > coalesce(c.seq, 0)),
        s AS (SELECT t, sum(n) OVER (ORDER BY t) AS upto, sum(n) OVER () AS total FROM m)
        SELECT min(t) FROM s WHERE upto >= $share * total"""
    row = db.execute(sql, {"share": share}).fetchone()
    return row[0] if row else None


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


