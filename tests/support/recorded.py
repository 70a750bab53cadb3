"""Recorded workloads as one fixed order of arrivals, begins and ends of calls: the same for every cache that plays it.

    source, workflows = recorded("hyperagent", "private", max_calls=40)
    for step in order(workflows, concurrency=24, running=8): ...

Where the recordings are not at hand a generator of the same shape takes their place, and `source` says so.
"""

import heapq
import itertools
import random
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pbkv.workloads.adapters.agent_calls import load_agent_calls
from pbkv.workloads.adapters.runs import SizeRule
from pbkv.workloads.adapters.who_and_when import load_conversations
from pbkv.workloads.hover_like import HoverLike
from pbkv.workloads.layouts import LayoutName
from pbkv.workloads.swe_like import SweLike
from pbkv.workloads.tokens import Segment, TokenCall, TokenWorkflow

DATA = Path(__file__).parents[3] / "shared" / "data"
#: Name -> file or folder below DATA.
RECORDINGS = {
    "hyperagent": "agent_calls_hyperagent.parquet", "ag2": "agent_calls_ag2.parquet", "who_and_when": "who_and_when",
}
#: Workflows a generator supplies in place of a recording.
GENERATED = 128
#: How long a call runs: the same whatever was cached, or caches would see different orders. Seconds per prompt and output token.
PREFILL_S, DECODE_S = 1 / 12_000, 0.01


def recorded(name: str, layout: LayoutName, *, max_calls: int = 0, data: Path = DATA) -> tuple[str, list[TokenWorkflow]]:
    """(where the workflows are from, the workflows); each run is cut after `max_calls` calls, 0 = never."""
    path = data / RECORDINGS[name]
    if not path.exists():
        generator = SweLike(layout=layout, max_calls=max_calls or 60) if name == "hyperagent" else HoverLike(layout=layout)
        made = list(itertools.islice(generator.workflows(0), GENERATED))
        return f"{generator.name}-like, generated", [cut(workflow, max_calls) for workflow in made]
    if path.is_dir():
        workload = load_conversations(path, layout=layout, max_calls=max_calls)
    else:
        workload = load_agent_calls(path, layout=layout, rule=SizeRule(), max_calls=max_calls)
    return name, list(workload.workflows(0))


def cut(workflow: TokenWorkflow, calls: int) -> TokenWorkflow:
    """The first calls of a workflow, the last of which says that it is."""
    if not calls or len(workflow.calls) <= calls:
        return workflow
    kept = workflow.calls[:calls]
    return replace(workflow, calls=(*kept[:-1], replace(kept[-1], final=True)))


def live_tokens(workflows: Iterable[TokenWorkflow]) -> float:
    """Mean over calls of the distinct tokens of their workflow so far: what a workflow would keep in an unlimited cache."""
    sizes: list[int] = []
    for workflow in workflows:
        seen: set[tuple[Segment, ...]] = set()
        size = 0
        for call in workflow.calls:
            path = (*call.prompt, call.output)
            for end in range(1, len(path) + 1):
                if path[:end] not in seen:
                    seen.add(path[:end])
                    size += path[end - 1].tokens
            sizes.append(size)
    return sum(sizes) / len(sizes)


@dataclass(frozen=True, slots=True)
class Step:
    """Call `number` (ascending by arrival) arrives and finds no room to run ("queue"), begins to run, or has ended."""

    kind: Literal["queue", "begin", "end"]
    number: int
    workflow: str
    call: TokenCall


def order(workflows: Sequence[TokenWorkflow], concurrency: int, running: int) -> Iterator[Step]:
    """Closed loop in virtual time: `concurrency` workflows at a time, of whose calls `running` run, first come first served."""
    supply = iter(workflows)
    due: list[tuple[float, int, TokenWorkflow, int, bool]] = []  # time, tie, workflow, call, whether it ends (else it arrives)
    waiting: deque[tuple[int, TokenWorkflow, int]] = deque()
    ties, numbers, free = itertools.count(), itertools.count(1), running
    numbered: dict[str, int] = {}

    def arrives(workflow: TokenWorkflow, at: int, now: float) -> None:
        heapq.heappush(due, (now + workflow.calls[at].delay_s, next(ties), workflow, at, False))

    for n, workflow in enumerate(itertools.islice(supply, concurrency)):
        arrives(workflow, 0, n * 1.0)
    while due:
        now, _, workflow, at, ends = heapq.heappop(due)
        if ends:
            free += 1
            yield Step("end", numbered[workflow.name], workflow.name, workflow.calls[at])
            if at + 1 < len(workflow.calls):
                arrives(workflow, at + 1, now)
            elif (following := next(supply, None)) is not None:
                arrives(following, 0, now)
        else:
            waiting.append((next(numbers), workflow, at))
            if not free:
                yield Step("queue", waiting[-1][0], workflow.name, workflow.calls[at])
        while free and waiting:
            number, admitted, at = waiting.popleft()
            free -= 1
            numbered[admitted.name] = number
            call = admitted.calls[at]
            took = call.prompt_tokens * PREFILL_S + call.output.tokens * DECODE_S
            heapq.heappush(due, (now + took, next(ties), admitted, at, True))
            yield Step("begin", number, admitted.name, call)


class Tokens:
    """Token ids of segments: equal keys give equal tokens, different keys differ. `vocabulary` 0 = from the first token on, with ids that
    grow; else random ids below it. Of a segment's tokens one in `divisor` is kept, at least one.
    """

    def __init__(self, vocabulary: int = 0, divisor: int = 1) -> None:
        self._vocabulary, self._divisor = vocabulary, divisor
        self._bases: dict[int, int] = {}

    def of(self, segments: Iterable[Segment]) -> "array[int]":
        """All of them, one after the other."""
        tokens: array[int] = array("q")
        for key, size in segments:
            count = max(1, size // self._divisor)
            if self._vocabulary:
                rng = random.Random(key)
                tokens.extend(rng.choices(range(self._vocabulary), k=count))
            else:
                base = self._bases.setdefault(key, len(self._bases) << 24)
                tokens.extend(range(base, base + count))
        return tokens
