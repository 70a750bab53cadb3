"""Which stream a question is about, and which time range."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from collector.reader import Reader
from collector.views.models import Server
from pbkv.errors import UsageError
from pbkv.events.schema import EVENT_KINDS, Namespace

#: How far back state that still holds is looked up: a workflow without a call for longer is not shown as live.
PAST_S = 900.0
#: Most events back in which it is looked up.
MAX_PAST = 2_000_000
#: A live stream without an event for this long is stale.
STALE_S = 5.0
#: Messages before the high-water mark in which the newest event is looked for; the last of them may be lost or empty.
_TAIL = 256
_WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
_EPOCH = datetime(1970, 1, 1)

_STREAMS = f"""
    WITH top AS (SELECT src, max(seq) AS seq FROM raw.high_water GROUP BY src),
    named AS (
        SELECT src, max_by(text, id) FILTER (namespace = {int(Namespace.ENGINE)}) AS engine,
            max_by(text, id) FILTER (namespace = {int(Namespace.MODEL)}) AS model,
            max_by(text, id) FILTER (namespace = {int(Namespace.CONTROL_URL)}) AS control_url
        FROM raw.name WHERE namespace IN ({int(Namespace.CONTROL_URL)}, {int(Namespace.ENGINE)}, {int(Namespace.MODEL)}) GROUP BY src)
    SELECT s.src, s.server, s.epoch, s.rank, s.first_t, coalesce(top.seq, 0)::BIGINT AS seq, engine, model, control_url
    FROM raw.source s LEFT JOIN top USING (src) LEFT JOIN named USING (src)
    QUALIFY row_number() OVER (PARTITION BY s.server, s.rank ORDER BY s.epoch DESC) = 1 ORDER BY s.server, s.rank"""


#: Commits are at most seconds apart, so the newest few thousand cover any window that is answered from events.
_VOLUME = """
    WITH h AS (SELECT seq, t, coalesce(records, 0) AS n FROM raw.high_water WHERE src = $src ORDER BY seq DESC LIMIT 10000),
    s AS (SELECT seq, t, n, sum(n) OVER (ORDER BY seq DESC) AS upto FROM h)
    SELECT coalesce(sum(n) FILTER (t > make_timestamp($since)), 0)::BIGINT AS events,
        coalesce(max(seq) FILTER (upto > $past), 0)::BIGINT AS seq0 FROM s"""


@dataclass(frozen=True)
class Scope:
    """A stream and the range t0 < t <= t1 (naive UTC). `servers` lists the newest epoch of every server in the source."""

    src: int | None
    server: Server | None
    servers: tuple[Server, ...]
    now: datetime
    window_s: float
    #: Events in the window, about, and the message before which state is not looked for.
    events: int = 0
    seq0: int = 0

    @property
    def params(self) -> dict[str, int]:
        """Values of the scope parameters of `Query`."""
        t1 = micros(self.now)
        t0 = t1 - round(self.window_s * 1e6)
        # A stream that stopped long ago still shows the state it stopped in.
        last = min(t1, micros(self.server.last_event)) if self.server else t1
        return {
            "src": self.src or 0, "t0": t0, "t1": t1, "past": min(t0, last - round(PAST_S * 1e6)),
            "bucket": bucket_s(self.window_s) * 1_000_000, "seq0": self.seq0, "events": self.events,
        }


def micros(t: datetime) -> int:
    """Microseconds since 1970 of a naive UTC time."""
    return (t - _EPOCH) // timedelta(microseconds=1)


def bucket_s(window_s: float) -> int:
    """Width of a point of a series, seconds: at most about 60 points in a window."""
    return next((w for w in _WIDTHS_S if window_s / w <= 60), _WIDTHS_S[-1])


def find_scope(reader: Reader, window_s: float = 60.0, server: str | None = None) -> Scope:
    """The stream of `server` (default: the one with the newest event) and the window that ends now, or at the last event of a file.

    Raises UsageError for a server that is not in the source, and like Reader.sql.
    """
    now = datetime.now(UTC).replace(tzinfo=None)
    rows = reader.sql(_STREAMS).to_pylist()
    last = _last_events(reader, rows)
    if not reader.live and last:
        now = max(t for t, _ in last.values())
    streams = {row["src"]: _server(row, last.get(row["src"]), now) for row in rows}
    src = _choose(streams, server, reader.source)
    if src is not None and not reader.live:
        now = streams[src].last_event
    events, seq0 = _volume(reader, src, now - timedelta(seconds=window_s)) if src is not None else (0, 0)
    return Scope(src, streams[src] if src is not None else None, tuple(streams.values()), now, window_s, events, seq0)


def _volume(reader: Reader, src: int, since: datetime) -> tuple[int, int]:
    """(events in the window, message before which MAX_PAST events back lies). The window of a file is taken as all of it: when its
    events were stored says nothing of when they happened."""
    since = since if reader.live else _EPOCH
    row = reader.sql(_VOLUME, {"src": src, "since": micros(since), "past": MAX_PAST}).to_pylist()[0]
    return row["events"], row["seq0"]


def _choose(streams: dict[int, Server], name: str | None, source: str) -> int | None:
    chosen = {src: s for src, s in streams.items() if name is None or s.name == name}
    if streams and not chosen:
        raise UsageError(f"server {name!r}: not in {source}; expected one of {', '.join(sorted({s.name for s in streams.values()}))}")
    return max(chosen, key=lambda src: (chosen[src].last_event, -src), default=None)


def _server(row: dict[str, Any], last: tuple[datetime, int] | None, now: datetime) -> Server:
    t, step = last or (row["first_t"], 0)
    return Server(
        row["server"], row["epoch"], row["rank"], row["engine"] or "", row["model"] or "", row["control_url"], step, t,
        max(0.0, (now - t).total_seconds()),
    )


def _last_events(reader: Reader, rows: list[dict[str, Any]]) -> dict[int, tuple[datetime, int]]:
    """Per stream, time and scheduler step of its newest event. Each branch names its stream and sequence range as constants: only then
    does DuckDB skip everything before them."""
    branches = [
        f"SELECT src, max(t) AS t, max(sched_step) AS step FROM raw.{kind} "
        f"WHERE src = {row['src']:d} AND seq >= {max(0, row['seq'] - _TAIL):d} GROUP BY src"
        for row in rows for kind in EVENT_KINDS
    ]
    if not branches:
        return {}
    found = reader.sql(f"SELECT src, max(t) AS t, max(step) AS step FROM ({' UNION ALL '.join(branches)}) GROUP BY src").to_pylist()
    return {f["src"]: (f["t"], f["step"]) for f in found}
