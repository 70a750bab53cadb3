"""In which order the calls of a recording come when nothing depends on the cache: as recorded, or in a closed loop of nominal durations."""

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pbkv.engine.timing import Linear
from pbkv.whatif.recording import NOWHERE, RecordedCall, RecordedWorkflow, Recording


class Turn(NamedTuple):
    """Call `call` of workflow `workflow` (positions in the recording) comes at `at` (s), before the turns after it."""

    at: float
    workflow: int
    call: int


def order_of(recording: Recording, concurrency: int | None = None) -> list[Turn]:
    """All calls. Where all have been seen to arrive and no other `concurrency` is asked for, by their arrival."""
    if concurrency is None and all(not math.isnan(call.arrived) for workflow in recording.workflows for call in workflow.calls):
        return sorted(
            Turn(call.arrived, n, m) for n, workflow in enumerate(recording.workflows) for m, call in enumerate(workflow.calls)
        )
    return list(_nominal(recording, recording.concurrency if concurrency is None else concurrency))


def in_order(recording: Recording, turns: Sequence[Turn]) -> list[RecordedCall]:
    """The calls as they come."""
    return [recording.workflows[turn.workflow].calls[turn.call] for turn in turns]


def _nominal(recording: Recording, concurrency: int | None) -> Iterator[Turn]:
    """Every call takes as long as it would alone and without a cache, so that all policies and pools see the same order. `concurrency`
    workflows at a time; None = they start when they did.
    """
    workflows, timing = recording.workflows, Linear()
    due: list[Turn] = []
    left = [len(workflow.calls) for workflow in workflows]
    waiting = [_waiting(workflow) for workflow in workflows]
    supply = iter(range(len(workflows)))

    def release(number: int, ended: int, at: float) -> None:
        calls = workflows[number].calls
        for n in waiting[number].get(ended, ()):
            heapq.heappush(due, Turn(at + calls[n].delay_s, number, n))

    for n in range(len(workflows) if concurrency is None else concurrency):
        number = next(supply, None)
        if number is None:
            break
        release(number, NOWHERE, workflows[number].start_s if concurrency is None else n * recording.stagger_s / concurrency)
    while due:
        turn = heapq.heappop(due)
        yield turn
        call = workflows[turn.workflow].calls[turn.call]
        ended = turn.at + timing.prefill_s(call.prompt_tokens, 0.0) + call.output_tokens * timing.decode_s(1, 0.0)
        release(turn.workflow, turn.call, ended)
        left[turn.workflow] -= 1
        if not left[turn.workflow] and (following := next(supply, None)) is not None:
            release(following, NOWHERE, ended)


def _waiting(workflow: RecordedWorkflow) -> dict[int, list[int]]:
    """Calls by the call that they wait for."""
    waiting: dict[int, list[int]] = {}
    for n, call in enumerate(workflow.calls):
        waiting.setdefault(call.after, []).append(n)
    return waiting
