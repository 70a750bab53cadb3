"""A forecast: what a setting would have come to, beside what was, with the error of the method."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pbkv.errors import UsageError
from pbkv.whatif.outcome import FIGURES, Outcome
from pbkv.whatif.recording import Recording
from pbkv.whatif.replay import replay
from pbkv.whatif.setting import Setting


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
    """How well the recorded setting is replayed. `residuals` by figure; empty for a trace, which measured nothing."""

    present: Outcome
    residuals: Mapping[str, Residual]


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
    recording: Recording, *, stop: Callable[[], bool] | None = None, progress: Callable[[int], None] | None = None,
) -> Fidelity:
    """Replay the recorded setting. Raises Refused when it cannot be trusted."""
    present = replay(recording, stop=stop, progress=progress)
    residuals = {
        name: Residual(name, measured, present.figures[name])
        for name, measured in recording.measured.items() if name in FIGURES and not math.isnan(present.figures[name])
    }
    return Fidelity(present, residuals)


def forecast(
    recording: Recording, known: Fidelity, setting: Setting, *,
    stop: Callable[[], bool] | None = None, progress: Callable[[int], None] | None = None,
) -> Forecast:
    """What `setting` would have come to."""
    outcome = replay(recording, setting, stop=stop, progress=progress)
    return Forecast(setting, estimates(known, outcome), outcome)


def estimates(known: Fidelity, outcome: Outcome) -> dict[str, Estimate]:
    """The replayed change on top of what was measured, give or take the residual."""
    found: dict[str, Estimate] = {}
    for name, value in outcome.figures.items():
        present = known.present.figures[name]
        if math.isnan(value) or math.isnan(present):
            continue
        residual = known.residuals.get(name)
        shift = residual.error if residual else 0.0
        found[name] = Estimate(value - shift, value - shift - abs(shift), value - shift + abs(shift), present - shift)
    return found
