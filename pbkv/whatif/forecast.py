"""A forecast: what a setting would have come to, beside what was, with the error of the method."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pbkv.errors import UsageError
from pbkv.whatif.jitter import jittered, timing_error
from pbkv.whatif.outcome import FIGURES, Outcome
from pbkv.whatif.recording import Recording
from pbkv.whatif.replay import replay
from pbkv.whatif.setting import Setting

#: Replays off in time by which chance is told, and standard deviations that an interval reaches for it: the 95 % quantile of Student's t
#: for what is estimated from JITTERS + 1 values, times the square root of 2, since chance is in the truth and in the replay.
JITTERS, SPREADS = 3, 2.353 * 2**0.5
#: Share of a change that an interval reaches for what the change itself gets wrong. How often the truth is inside is counted by
#: tests/benchmarks/bench_whatif_honesty.py.
OF_CHANGE = 0.05
#: Share of prompt tokens by which hits may be off, and of calls whose pages may be unknown, before nothing is forecast.
TOLERANCE, MOST_UNKNOWN = 0.05, 0.2
#: Calls of a log below which nothing is forecast.
LEAST_CALLS = 20
_WIDER = "record for longer, or take another window"


class Refused(UsageError):
    """The recording does not support a forecast; the message says what is missing."""


@dataclass(frozen=True)
class Residual:
    """One figure of the recorded setting: as measured by the server, and as replayed."""

    figure: str
    measured: float
    replayed: float

    @property
    def error(self) -> float:
        """Replayed minus measured."""
        return self.replayed - self.measured


@dataclass(frozen=True)
class Fidelity:
    """How well the recorded setting is replayed. `residuals` by figure; empty for a trace, which measured nothing. `spread`: by how much a
    figure differs between replays that are a little off in time, its standard deviation.
    """

    present: Outcome
    residuals: Mapping[str, Residual]
    spread: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Estimate:
    """One figure at the asked setting. The truth lies in [low, high] nine times in ten; `present` is the recorded setting's."""

    value: float
    low: float
    high: float
    present: float

    @property
    def change(self) -> float:
        """Against the present."""
        return self.value - self.present

    @property
    def certain(self) -> bool:
        """The interval does not hold the present: the change is larger than the error."""
        return not self.low <= self.present <= self.high


@dataclass(frozen=True)
class Forecast:
    """Estimates by the names of pbkv.whatif.outcome.FIGURES; figures that never happened are left out."""

    setting: Setting
    estimates: Mapping[str, Estimate]
    outcome: Outcome


def fidelity(
    recording: Recording, *, stop: Callable[[], bool] | None = None, progress: Callable[[int], None] | None = None, jitters: int = JITTERS,
    tolerance: float = TOLERANCE,
) -> Fidelity:
    """Replay the recorded setting, then `jitters` times a little off in time. Raises Refused when what was measured cannot be trusted to be
    what is replayed: too few calls, too many of unknown pages, or a hit rate off by more than `tolerance`.
    """
    _check(recording)
    present = replay(recording, stop=stop, progress=progress)
    residuals = {
        name: Residual(name, measured, present.figures[name])
        for name, measured in recording.measured.items() if name in FIGURES and not math.isnan(present.figures[name])
    }
    if present.complete:
        _check_hits(recording, residuals, tolerance)
    return Fidelity(present, residuals, spread(recording, present, jitters, stop))


def _check(recording: Recording) -> None:
    if recording.measured and recording.calls < LEAST_CALLS:
        few = f"{recording.name}: {recording.calls} calls, expected at least {LEAST_CALLS} to tell how well they are replayed"
        raise Refused(f"{few}; {_WIDER}")
    share = recording.unknown_calls / max(1, recording.calls)
    if share > MOST_UNKNOWN:
        unknown = f"{recording.name}: what {share:.0%} of the calls read is not in the log"
        raise Refused(f"{unknown}; start the collector before the server, {_WIDER}")


def _check_hits(recording: Recording, residuals: Mapping[str, Residual], tolerance: float) -> None:
    hits = [residuals[name] for name in ("hit", "hit_device") if name in residuals]
    worst = max(hits, key=lambda each: abs(each.error), default=None)
    if worst is not None and abs(worst.error) > tolerance:
        missing = "; ".join(recording.losses) or "nothing that the log knows of"
        apart = f"{worst.replayed:.3f} replayed where {worst.measured:.3f} was measured, more than {tolerance:g} apart"
        raise Refused(f"{recording.name}: {FIGURES[worst.figure].meaning}: {apart}; what is missing: {missing}; {_WIDER}")


def spread(recording: Recording, present: Outcome, jitters: int, stop: Callable[[], bool] | None = None) -> dict[str, float]:
    """Standard deviation of each figure over the replay and `jitters` others that are off in time by as much as the replay itself is."""
    found = [present]
    shift_s = timing_error(recording, present)
    for seed in range(jitters if present.complete else 0):
        outcome = replay(jittered(recording, shift_s, seed), stop=stop)
        if not outcome.complete:
            break
        found.append(outcome)
    if len(found) < 2:
        return {}
    return {name: float(np.std([outcome.figures[name] for outcome in found], ddof=1)) for name in FIGURES}


def forecast(
    recording: Recording, known: Fidelity, setting: Setting, *,
    stop: Callable[[], bool] | None = None, progress: Callable[[int], None] | None = None,
) -> Forecast:
    """What `setting` would have come to for the same traffic: the same workflows, each call after the ones it waited for."""
    outcome = replay(recording, setting, stop=stop, progress=progress)
    return Forecast(setting, estimates(known, outcome), outcome)


def estimates(known: Fidelity, outcome: Outcome) -> dict[str, Estimate]:
    """The replayed change on top of what was measured, give or take the error of the present, chance in both replays, and a share of the
    change itself.
    """
    found: dict[str, Estimate] = {}
    for name, value in outcome.figures.items():
        present = known.present.figures[name]
        if math.isnan(value) or math.isnan(present):
            continue
        residual = known.residuals.get(name)
        shift = residual.error if residual else 0.0
        chance = known.spread.get(name, 0.0)
        error = abs(shift) + SPREADS * (chance if math.isfinite(chance) else 0.0) + OF_CHANGE * abs(value - present)
        found[name] = Estimate(value - shift, value - shift - error, value - shift + error, present - shift)
    return found
