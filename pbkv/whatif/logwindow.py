"""Which part of which log, and how it is fetched: one stream, in pieces that any source of events answers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from pbkv.errors import UsageError

#: SQL and parameters in, Arrow out: `sql` of a collector.client reader.
Query = Callable[[str, Mapping[str, Any]], pa.Table]
Columns = dict[str, np.ndarray]
#: Rows of one answer; sources refuse longer ones.
PIECE = 100_000


@dataclass(frozen=True)
class Window:
    """A time range of a log, wall clock in UTC without time zone; None = from its beginning, to its end. `last_s`: so many seconds before
    the end instead. `server` is needed where a log has several; `epoch` None = the newest that has calls in the range.
    """

    start: datetime | None = None
    end: datetime | None = None
    last_s: float | None = None
    server: str | None = None
    epoch: int | None = None

    def __post_init__(self) -> None:
        if self.last_s is not None and not 0 < self.last_s < 1e9:
            raise UsageError(f"last = {self.last_s:g} s: expected more than 0 s and less than 30 years; give for example 10m")
        if self.last_s is not None and self.start is not None:
            raise UsageError("window: from and last exclude each other; give one of them")
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise UsageError(f"window: from {self.start} is not before to {self.end}; exchange them")


@dataclass(frozen=True)
class Span:
    """One stream and the messages that a window covers: after `after` up to `upto`. `first` is where the stream begins in the log."""

    src: int
    server: str
    epoch: int
    engine: str
    first: int
    after: int
    upto: int
    start: datetime
    end: datetime
    others: int = 0

    @property
    def whole(self) -> bool:
        """Whether the server began with it: nothing was in its cache before."""
        return self.after < self.first <= 1


_STREAMS = """
SELECT s.src, s.server, s.epoch, max(CASE WHEN n.namespace = 5 THEN n.text END) AS engine
FROM raw.source s LEFT JOIN raw.name n ON n.src = s.src AND n.namespace = 5 GROUP BY ALL ORDER BY s.epoch DESC, s.src"""
_REACH = """
SELECT min(seq) AS first, max(seq) AS last, max(t) AS last_t, min(t) AS first_t, count(*) AS calls
FROM raw.call WHERE src = $src AND t > $start AND t <= $end"""
_EARLIEST = "SELECT min(seq) AS seq FROM (SELECT min(seq) AS seq FROM raw.batch WHERE src = $src UNION ALL " \
    "SELECT min(seq) FROM raw.call WHERE src = $src UNION ALL SELECT min(seq) FROM raw.setting WHERE src = $src UNION ALL " \
    "SELECT min(seq) FROM raw.name WHERE src = $src AND seq > 0)"
_TIMED = ("call", "batch", "workflow", "knob", "occupancy")
_LAST = "SELECT max(seq) AS seq FROM (" + " UNION ALL ".join(
    f"SELECT max(seq) AS seq FROM raw.{table} WHERE src = $src AND t <= $end" for table in _TIMED
) + ")"
_FAR = (datetime(1970, 1, 1), datetime(2262, 1, 1))


def find_span(query: Query, window: Window) -> Span:
    """The stream and messages of a window. Raises UsageError when there is no call in it, or more than one server."""
    streams = query(_STREAMS, {}).to_pylist()
    servers = sorted({row["server"] for row in streams})
    if window.server is not None and window.server not in servers:
        raise UsageError(f"server = {window.server!r}: the log has {', '.join(servers) or 'none'}; name one of them")
    if window.server is None and len(servers) > 1:
        raise UsageError(f"server: the log has {', '.join(servers)}; name one of them")
    asked = {"server": window.server, "epoch": window.epoch}
    mine = [row for row in streams if all(value is None or row[name] == value for name, value in asked.items())]
    reaches = [(row, reach) for row in mine if (reach := _reach(query, int(row["src"]), window)) is not None]
    if not reaches:
        raise UsageError("the log has no calls in this window; record for longer, or take a wider window")
    row, reach = max(reaches, key=lambda each: each[1]["last_t"])
    return _span(query, row, reach, window, len(reaches) - 1)


def _reach(query: Query, src: int, window: Window) -> dict[str, Any] | None:
    start, end = window.start or _FAR[0], window.end or _FAR[1]
    if window.last_s is not None:
        newest = query(_REACH, {"src": src, "start": _FAR[0], "end": end}).to_pylist()[0]["last_t"]
        start = np.datetime64(newest or end).astype("datetime64[us]") - np.timedelta64(round(window.last_s * 1e6), "us")
        start = start.astype(datetime)
    found = query(_REACH, {"src": src, "start": start, "end": end}).to_pylist()[0]
    last = query(_LAST, {"src": src, "end": end}).to_pylist()[0]["seq"]
    return {**found, "start": start, "last": last} if found["calls"] else None


def _span(query: Query, row: dict[str, Any], reach: dict[str, Any], window: Window, others: int) -> Span:
    src = int(row["src"])
    first = query(_EARLIEST, {"src": src}).to_pylist()[0]["seq"] or 1
    before = query(_LAST, {"src": src, "end": reach["start"]}).to_pylist()[0]["seq"]
    after = first - 1 if before is None else int(before)
    return Span(
        src, row["server"], row["epoch"], row["engine"] or "", int(first), min(after, int(reach["first"]) - 1), int(reach["last"]),
        max(reach["start"], reach["first_t"]), reach["last_t"], others,
    )


def fetch(query: Query, table: str, columns: str, span: Span, *, after: int | None = None, where: str = "") -> Iterator[pa.Table]:
    """Rows of raw.`table` of the span in order, `seq` and `idx` first; from messages after `after` instead of the span's."""
    at, idx = (span.after if after is None else after), (1 << 32) - 1
    extra = f"AND {where}" if where else ""
    while True:
        sql = f"""SELECT seq, idx, {columns} FROM raw.{table} e WHERE src = $src AND seq >= $at AND (seq > $at OR idx > $idx)
            AND seq <= $upto {extra} ORDER BY seq, idx LIMIT {PIECE}"""
        rows = query(sql, {"src": span.src, "at": at, "idx": idx, "upto": span.upto})
        if not rows.num_rows:
            return
        yield rows
        if rows.num_rows < PIECE:
            return
        at, idx = rows["seq"][-1].as_py(), rows["idx"][-1].as_py()


def columns_of(tables: Iterator[pa.Table]) -> Columns:
    """All rows as NumPy columns; empty = no rows."""
    parts = list(tables)
    if not parts:
        return {}
    rows = pa.concat_tables(parts)
    return {name: rows[name].to_numpy() for name in rows.column_names}


def named(column: str) -> str:
    """SQL for the text behind an id column; NULL = none; `#id` where its name was lost."""
    return (
        f"CASE WHEN e.{column} = 0 THEN NULL ELSE coalesce((SELECT any_value(n.text) FROM raw.name n WHERE n.src = e.src "
        f"AND n.id = e.{column}), '#' || e.{column}) END AS {column}"
    )
