"""SOURCE as a recording: a log through the collector's readers, or a trace file."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from collector.client import open as open_source
from collector.options import parse_duration
from console.whatif.traces import TraceOptions, open_as_recording
from pbkv.errors import UsageError
from pbkv.whatif.log import Reading, read_log
from pbkv.whatif.logwindow import Window, find_span
from pbkv.whatif.recording import Recording

if TYPE_CHECKING:
    import pyarrow as pa

_TRACES = (".jsonl", ".json", ".parquet")
#: For one piece of a log, s.
_DEADLINE_S = 60.0


class Opened(NamedTuple):
    """A recording, and the time it covers as people say it, "" for a trace."""

    recording: Recording
    window: str = ""


def window_of(from_: str | None, to: str | None, last: str | None, server: str | None) -> Window:
    """The window that the options name. Raises UsageError."""
    if last is not None and (from_ or to):
        raise UsageError("--last and --from or --to exclude each other: give one of them")
    seconds = parse_duration(last, "--last") if last is not None else None
    return Window(_time(from_, "--from"), _time(to, "--to"), seconds, server)


def _time(text: str | None, option: str) -> datetime | None:
    """UTC without time zone."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text[:60]!r}: expected an ISO time in UTC or with an offset: 2026-05-01T14:00+02:00") from None
    return at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at


def is_trace(source: str) -> bool:
    """Whether it is a file of calls that this product did not record."""
    path = Path(source)
    return "://" not in source and (path.suffix in _TRACES or (path.is_dir() and any(path.glob("*.json"))))


def open_recording(
    source: str, axes: Mapping[str, str], window: Window, facts: Mapping[str, str], options: TraceOptions, token: str | None,
) -> Opened:
    """What SOURCE recorded: of a log the `window`, with `facts` that go before those of the log; a trace at the first setting of the axes.
    Raises UsageError, Unreachable.
    """
    if not is_trace(source):
        if options != TraceOptions():
            raise UsageError("--page-size, --timing, --layout and --workflows are for traces: a log says it; use --given for what it lacks")
        return _log(source, window, facts, token)
    if window != Window() or facts:
        raise UsageError("--from, --to, --last, --server and --given are for logs: a trace is replayed whole, or its first --workflows N")
    return Opened(open_as_recording(source, axes, options))


def _log(source: str, window: Window, given: Mapping[str, str], token: str | None) -> Opened:
    with open_source(source, token) as reader:

        def query(sql: str, params: Mapping[str, Any]) -> "pa.Table":
            return reader.sql(sql, params or None, deadline_s=_DEADLINE_S)

        span = find_span(query, window)
        recording = read_log(query, Reading(window, given))
    return Opened(recording, f"{span.start:%Y-%m-%d %H:%M:%S} to {span.end:%Y-%m-%d %H:%M:%S} UTC")


def facts_of(given: Sequence[str]) -> dict[str, str]:
    """["device_tokens=500000"] as names and values. Raises UsageError."""
    pairs = [text.partition("=") for text in given]
    for text, (name, sep, value) in zip(given, pairs, strict=True):
        if not sep or not name.strip() or not value.strip():
            raise UsageError(f"--given {text[:60]!r}: expected NAME=VALUE, such as device_tokens=500000")
    return {name.strip(): value.strip() for name, _, value in pairs}
