"""The last minutes of a source of events as a recording, for the forecast process."""

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from pbkv.whatif.log import Reading, read_log
from pbkv.whatif.logwindow import Query, Span, Window, find_span
from pbkv.whatif.question import Loaded
from pbkv.whatif.recording import Recording

#: The stream that the screens show: of several servers the one whose call ended last.
_NEWEST = "SELECT s.server FROM raw.call c JOIN raw.source s ON s.src = c.src ORDER BY c.t DESC LIMIT 1"
_CALLS = "SELECT count(*) AS n FROM raw.call WHERE src = $src AND seq > $after AND seq <= $upto"
#: For one piece of the log, s.
DEADLINE_S = 30.0


class Events(Protocol):
    """A source of events: a reader of the collector."""

    live: bool

    def sql(self, query: str, params: Mapping[str, Any] | None = None, *, deadline_s: float = 10.0) -> pa.Table:
        """SQL in, Arrow out."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class FromLog:
    """Reads what `open_events` opens. Both go to the forecast process by pickle."""

    open_events: Callable[[], Events]

    def __call__(self, span_s: float, most: int) -> Loaded:
        """The newest calls of the last `span_s` before the log's end, at most `most`. Raises UsageError when there is nothing to replay."""
        with closing(self.open_events()) as events:
            def query(sql: str, params: Mapping[str, Any]) -> pa.Table:
                return events.sql(sql, params, deadline_s=DEADLINE_S)

            newest = query(_NEWEST, {}).to_pylist()
            window = Window(last_s=span_s, server=newest[0]["server"] if newest else None)
            span = find_span(query, window)
            # Up to the same call, also while more are coming.
            recording = read_log(query, Reading(replace(window, end=span.end), most_calls=most))
            calls, covered = measured(recording)
            left_out = max(0, _count(query, span) - calls)
            return Loaded(recording, covered, span.end.isoformat(timespec="seconds"), left_out, events.live, calls)


def measured(recording: Recording) -> tuple[int, float]:
    """Calls that are in the figures, and the time from the first one's arrival to the last one's end, s."""
    calls = [call for workflow in recording.workflows for call in workflow.calls if not call.ended <= recording.measured_from_s]
    times = [(call.arrived, call.ended) for call in calls if not math.isnan(call.arrived + call.ended)]
    return len(calls), max(ended for _, ended in times) - min(arrived for arrived, _ in times) if times else 0.0


def _count(query: Query, span: Span) -> int:
    return int(query(_CALLS, {"src": span.src, "after": span.after, "upto": span.upto}).to_pylist()[0]["n"])
