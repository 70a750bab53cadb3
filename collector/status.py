"""A collector's counters as text: for a person (`pbkv collect --status`) and for Prometheus (`/metrics`)."""

from collections.abc import Iterator
from typing import Any

#: Metric -> (kind, meaning, where it is in the status).
_METRICS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "rows_per_s": ("gauge", "Events stored per second, over the last ten seconds", ("rows_per_s",)),
    "db_bytes": ("gauge", "Size of the database file", ("db_bytes",)),
    "wal_bytes": ("gauge", "Size of its write-ahead log", ("wal_bytes",)),
    "archive_bytes": ("gauge", "Size of the archive", ("archive", "bytes")),
    "archive_segments": ("gauge", "Segments in the archive", ("archive", "segments")),
    "queue_messages": ("gauge", "Messages read and not yet stored", ("queue", "messages")),
    "queue_bytes": ("gauge", "Memory they take", ("queue", "bytes")),
    "commits_total": ("counter", "Transactions", ("commits",)),
    "gaps_total": ("counter", "Holes seen in streams", ("gaps",)),
    "lost_messages_total": ("counter", "Messages that could not be had any more", ("lost",)),
    "duplicate_messages_total": ("counter", "Messages that came twice", ("duplicates",)),
    "refused_messages_total": ("counter", "Messages that were torn, foreign or hostile", ("refused",)),
    "queries_total": ("counter", "Queries asked", ("queries",)),
    "failing": ("gauge", "1 = storing or upkeep fails at the moment", ("is_failing",)),
}
_OF_STREAM: dict[str, tuple[str, str, str]] = {
    "stream_seq": ("gauge", "Newest message stored", "seq"),
    "stream_lag_seconds": ("gauge", "From sending a message to its commit", "lag_s"),
    "stream_age_seconds": ("gauge", "Since the stream was heard", "age_s"),
    "stream_dropped_total": ("counter", "Messages the server itself dropped", "dropped_by_server"),
}
#: Streams listed in /metrics, the newest: a label per restart of every server would grow for ever.
_MAX_STREAMS = 1000


def prometheus(status: dict[str, Any]) -> str:
    """The text that `/metrics` answers."""
    status = {**status, "is_failing": int(bool(status["failing"] or status["upkeep_failing"]))}
    lines = [line for name, (kind, help_, path) in _METRICS.items() for line in _metric(name, kind, help_, [("", _at(status, path))])]
    rows = [(f'{{kind="{kind}"}}', n) for kind, n in status["rows"].items()]
    lines += _metric("rows_total", "counter", "Events in the store when it was opened and stored since", rows)
    lines += _metric("commit_ms", "gauge", "Time of a transaction, of the last 4096", [
        (f'{{quantile="{q}"}}', status[f"commit_ms_p{p}"]) for q, p in (("0.5", "50"), ("0.99", "99"))
    ])
    streams = status["sources"][-_MAX_STREAMS:]
    for name, (kind, help_, field) in _OF_STREAM.items():
        lines += _metric(name, kind, help_, [(_labels(s), s[field]) for s in streams])
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, help_: str, samples: list[tuple[str, Any]]) -> Iterator[str]:
    yield f"# HELP pbkv_collector_{name} {help_}"
    yield f"# TYPE pbkv_collector_{name} {kind}"
    for labels, value in samples:
        if value is not None:
            yield f"pbkv_collector_{name}{labels} {value}"


def _labels(stream: dict[str, Any]) -> str:
    server = str(stream["server"]).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{server="{server}",epoch="{stream["epoch"]}",rank="{stream["rank"]}"}}'


def _at(status: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = status
    for key in path:
        value = value.get(key) if value is not None else None
    return value


def lines(status: dict[str, Any]) -> list[tuple[str, str]]:
    """(what, value) for a person; times in seconds and milliseconds, sizes in bytes with separators."""
    total = sum(status["rows"].values())
    table = [
        ("database", f"{status['db']}, {status['db_bytes']:,} bytes, log {status['wal_bytes']:,}"),
        ("events", f"{total:,}, {status['rows_per_s']:,.0f} per second"),
        ("queue", f"{status['queue']['messages']:,} messages, {status['queue']['bytes']:,} bytes"),
        ("commits", f"{status['commits']:,}, p50 {_ms(status['commit_ms_p50'])}, p99 {_ms(status['commit_ms_p99'])}"),
        ("lost", f"{status['lost']:,} messages in {status['gaps']:,} gaps; {status['duplicates']:,} came twice"),
        ("refused", f"{status['refused']:,}" + (f", last: {status['last_refusal']}" if status["refused"] else "")),
        ("queries", f"{status['queries']:,}"),
    ]
    if (archive := status["archive"]) is not None:
        table.append(("archive", f"{archive['folder']}, {archive['segments']:,} segments, {archive['bytes']:,} bytes"))
    table += [("failing", status[key]) for key in ("failing", "upkeep_failing") if status[key]]
    return table + [_stream(s) for s in status["sources"]]


def _stream(stream: dict[str, Any]) -> tuple[str, str]:
    lag, age = stream["lag_s"], stream["age_s"]
    parts = [
        f"epoch {stream['epoch']}, message {stream['seq']:,} of {stream['seen']:,}",
        "lag -" if lag is None else f"lag {lag:.2f} s",
        "not heard" if age is None else f"heard {age:.1f} s ago",
        f"dropped by the server {stream['dropped_by_server']:,}",
    ]
    return f"{stream['server']}/{stream['rank']}", ", ".join(parts)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
