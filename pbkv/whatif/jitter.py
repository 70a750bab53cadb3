"""The same recording a little off in time: by how much figures differ then is what chance makes of them."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pbkv.whatif.outcome import Outcome
from pbkv.whatif.recording import RecordedCall, RecordedWorkflow, Recording

#: Least shift, as a share of what a call usually takes: no measurement is more exact than that about another time.
LEAST = 0.01


def timing_error(recording: Recording, outcome: Outcome) -> float:
    """How far off in time a replay is, s: the median over calls of the difference in duration; at least LEAST of what calls take."""
    calls = outcome.calls
    if not len(calls):
        return 0.0
    took = calls["ended"] - calls["arrived"]
    places: list[tuple[int, int]] = list(zip(calls["workflow"].tolist(), calls["call"].tolist(), strict=True))
    recorded = np.array([_took(recording.workflows[workflow].calls[n]) for workflow, n in places])
    known = ~np.isnan(recorded)
    off = float(np.median(np.abs(took[known] - recorded[known]))) if known.any() else 0.0
    return max(off, LEAST * float(np.median(took)))


def _took(call: RecordedCall) -> float:
    return call.ended - call.arrived


def jittered(recording: Recording, shift_s: float, seed: int) -> Recording:
    """Every start and every delay up to `shift_s` longer or shorter, never negative; other workflows may come first."""
    rng = random.Random(seed)
    workflows = [_moved(workflow, shift_s, recording.began_s, rng) for workflow in recording.workflows]
    return replace(recording, workflows=tuple(sorted(workflows, key=lambda each: each.start_s)))


def _moved(workflow: RecordedWorkflow, shift_s: float, began_s: float, rng: random.Random) -> RecordedWorkflow:
    start = max(began_s, workflow.start_s + rng.uniform(-shift_s, shift_s))
    return workflow._replace(start_s=start, calls=_calls(workflow.calls, start, shift_s, rng))


def _calls(calls: Sequence[RecordedCall], start: float, shift_s: float, rng: random.Random) -> tuple[RecordedCall, ...]:
    made: list[RecordedCall] = []
    for call in calls:
        delay = max(0.0, call.delay_s + rng.uniform(-shift_s, shift_s))
        first = call.after < 0 and not math.isnan(call.arrived)
        made.append(call._replace(delay_s=delay, arrived=start + delay if first else call.arrived))
    return tuple(made)
