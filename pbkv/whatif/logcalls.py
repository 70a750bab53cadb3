"""From the call rows of a log to workflows whose calls wait for each other."""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from pbkv.engine.requests import pages_of
from pbkv.whatif.logpages import PageTrie, Path
from pbkv.whatif.logwindow import Query, Span, columns_of, fetch, named
from pbkv.whatif.recording import NOWHERE, RecordedCall, RecordedWorkflow

_COLUMNS = (
    f"{named('workflow')}, {named('agent')}, step, final, status, prompt_tokens, device_hit_tokens, host_hit_tokens, output_tokens, "
    "ttft_ms, end_page, pages, coalesce(max_tokens, 0) AS max_tokens, coalesce(place, 0) AS place, arrived_s IS NOT NULL AS exact, "
    # A row is written when its call ends; without the exact times that of its message is the nearest there is.
    "coalesce(arrived_s, epoch_us(t) / 1e6 - e2e_ms / 1e3)::DOUBLE AS arrived_s, coalesce(ended_s, epoch_us(t) / 1e6)::DOUBLE AS ended_s"
)
ABORTED = 1


class LogCall(NamedTuple):
    """One row of the log."""

    workflow: str | None
    agent: str
    step: int
    final: bool
    aborted: bool
    prompt_tokens: int
    device_hit_tokens: int
    host_hit_tokens: int
    output_tokens: int
    ttft_s: float
    end_page: int
    pages: int
    max_tokens: int
    place: int
    exact: bool
    arrived_s: float
    ended_s: float


class Close(NamedTuple):
    """An explicit close."""

    workflow: str
    at_s: float


def read_calls(query: Query, span: Span, *, after: int | None = None) -> list[LogCall]:
    """Calls that ended in the span, in order of their ends."""
    columns = columns_of(fetch(query, "call", _COLUMNS, span, after=after))
    if not columns:
        return []
    names = [name for name in columns if name not in ("seq", "idx")]
    return [_call(row) for row in zip(*(columns[name].tolist() for name in names), strict=True)]


def _call(row: Sequence[object]) -> LogCall:
    workflow, agent, step, final, status, prompt, device, host, output, ttft, *rest = row
    return LogCall(
        workflow, agent or "", step, bool(final), status == ABORTED, prompt, device, host, output, ttft / 1e3, *rest,  # type: ignore[operator, arg-type]
    )


def read_closes(query: Query, span: Span, *, after: int | None = None) -> list[Close]:
    """Workflows that were closed from outside, with the exact time, which older logs do not have."""
    columns = columns_of(fetch(query, "workflow", f"{named('workflow')}, at_s", span, after=after, where="event = 1 AND reason = 2"))
    rows = zip(columns["workflow"].tolist(), columns["at_s"].tolist(), strict=True) if columns else ()
    return [Close(name, at) for name, at in rows if name is not None and at is not None and not math.isnan(at)]


class Paths:
    """Pages of calls. What the log does not know is made up, so that it is found nowhere: `unknown` counts such calls."""

    def __init__(self, trie: PageTrie, page_size: int) -> None:
        self._trie, self._page_size = trie, page_size
        self._fresh = count(len(trie))
        self.unknown = 0

    def of(self, call: LogCall, output: int) -> tuple[Path, Path]:
        """(pages of the prompt, further pages of prompt and output)."""
        prompt, more = pages_of(call.prompt_tokens, output, self._page_size)
        path = self._trie.path(call.end_page) if call.end_page or not call.pages else None
        least = prompt if call.aborted else prompt + more
        if path is None or len(path) < least:
            self.unknown += 1
            path = path or ()
        missing = prompt + more - len(path)
        if missing > 0:
            path = (*path, *(next(self._fresh) for _ in range(missing)))
        return path[:prompt], path[prompt : prompt + more]


def workflows_of(calls: Iterable[LogCall], closes: Iterable[Close], paths: Paths) -> tuple[RecordedWorkflow, ...]:
    """Workflows in order of their starts. A name that comes back after its workflow ended is another workflow."""
    groups: list[list[LogCall]] = []
    current: dict[str, list[LogCall]] = {}
    over: dict[str, float] = {}
    ends: dict[str, list[float]] = {}
    for close in closes:
        ends.setdefault(close.workflow, []).append(close.at_s)
    for call in sorted(calls, key=lambda each: (each.arrived_s, each.place)):
        name = call.workflow
        if name is None:
            groups.append([call])
            continue
        group = current.get(name)
        if group is None or over.get(name, math.inf) <= call.arrived_s or _closed(ends.get(name), group, call):
            group = current[name] = []
            groups.append(group)
            over.pop(name, None)
        group.append(call)
        if call.final:
            over[name] = max(call.ended_s, over.get(name, -math.inf))
    made = [_workflow(group, ends, paths) for group in groups]
    return tuple(sorted(made, key=lambda each: (each.start_s, each.calls[0].place)))


def _closed(ends: Sequence[float] | None, group: Sequence[LogCall], call: LogCall) -> bool:
    """Whether the workflow was closed between the last call of `group` and `call`."""
    last = max(each.ended_s for each in group)
    return any(last <= end <= call.arrived_s for end in ends or ())


def _workflow(group: Sequence[LogCall], ends: Mapping[str, Sequence[float]], paths: Paths) -> RecordedWorkflow:
    start, last = group[0].arrived_s, max(call.ended_s for call in group)
    waits = predecessors([(call.arrived_s, call.ended_s) for call in group])
    since = [start if after == NOWHERE else group[after].ended_s for after in waits]
    calls = tuple(_recorded(call, after, at, paths) for call, after, at in zip(group, waits, since, strict=True))
    name = group[0].workflow
    close = min((at for at in ends.get(name or "", ()) if at >= last), default=math.nan)
    after = max(range(len(group)), key=lambda n: group[n].ended_s)
    return RecordedWorkflow(name or "", calls, start, name is not None, close - last, after, close)


def predecessors(times: Sequence[tuple[float, float]]) -> list[int]:
    """For calls (arrived, ended) in order of arrival, the position of the one that each waited for: of those that had ended when it came,
    the one that ended last; NOWHERE = none had. A fan-out waits for the call before it, what follows it for its last call.
    """
    running: list[tuple[float, int]] = []
    latest, found = NOWHERE, list[int]()
    for n, (arrived, ended) in enumerate(times):
        while running and running[0][0] <= arrived:
            latest = heapq.heappop(running)[1]
        found.append(latest)
        heapq.heappush(running, (ended, n))
    return found


def _recorded(call: LogCall, after: int, since: float, paths: Paths) -> RecordedCall:
    announced = max(call.max_tokens, call.output_tokens, 1)
    output = announced if call.aborted else max(1, call.output_tokens)
    pages, more = paths.of(call, output)
    return RecordedCall(
        call.agent, pages, max(1, call.prompt_tokens), output, more, call.final, announced if announced > output else 0, after,
        call.arrived_s - since, None, call.arrived_s, call.ended_s, call.aborted, call.place,
    )


def page_size_of(calls: Sequence[LogCall]) -> int | None:
    """The page size that the numbers of pages of all calls that ended well agree with; None when several do, or none."""
    done = [(call.prompt_tokens + call.output_tokens - 1, call.pages) for call in calls if not call.aborted and call.output_tokens]
    if not done:
        return None
    tokens, pages = (np.array(column) for column in zip(*done, strict=True))
    fitting = [size for size in range(1, 1025) if (tokens // size == pages).all()]
    return fitting[0] if len(fitting) == 1 else None
