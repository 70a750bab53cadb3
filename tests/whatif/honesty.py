"""Forecasts against what then happens: a run is recorded at one setting through the event stream into a store, another setting is forecast
from the store, and the same traffic is run at that other setting.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from pbkv.engine.engine import Engine
from pbkv.engine.play import PlaySettings, play
from pbkv.engine.settings import EngineSettings
from pbkv.knobs import KnobSet
from pbkv.whatif.forecast import Estimate, fidelity, forecast
from pbkv.whatif.log import Reading, read_log
from pbkv.whatif.logwindow import Window
from pbkv.whatif.outcome import CALL_DTYPE, FIGURES, call_figures
from pbkv.whatif.setting import KNOB_FIELDS, Setting
from pbkv.workloads.tokens import TokenWorkload
from tests.whatif.runs import Run, opened, report

#: What is compared. Counts of events are of stretches of time, which differ between two settings in how much traffic they hold.
COMPARED = ("hit", "hit_device", "hit_host", "ttft_mean", "ttft_p50", "ttft_p95")


@dataclass(frozen=True)
class Trial:
    """One forecast of one figure, and the truth."""

    change: str
    figure: str
    estimate: Estimate
    truth: float

    @property
    def inside(self) -> bool:
        """The truth lies in the stated interval, but for rounding."""
        slack = 1e-9 * max(1.0, abs(self.truth))
        return self.estimate.low - slack <= self.truth <= self.estimate.high + slack

    @property
    def wrong_sign(self) -> bool:
        """The forecast says for certain that the figure moves one way, and it moves the other or not at all."""
        return self.estimate.certain and (self.truth - self.estimate.present) * self.estimate.change <= 0


def random_setting(rng: random.Random, engine: EngineSettings) -> Setting:
    """One to three things changed at once."""
    choices: dict[str, Any] = {
        "policy": rng.choice(("lru", "lae", "session_lae", "kvflow", "he", "first_use")), "gamma": round(rng.uniform(0.3, 1.0), 2),
        "k": rng.randint(1, 8), "device_tokens": int(engine.device_tokens * rng.choice((0.7, 0.85, 1.2, 1.5, 2.0))),
    }
    if engine.host_tokens:
        choices |= {
            "host_tokens": int(engine.host_tokens * rng.choice((0.5, 0.75, 1.5, 2.0))), "prefetch": rng.choice(("off", "aggressive")),
            "prefetch_budget": rng.choice((1 << 20, 16 << 20, 1 << 30)), "host_order": "score",
        }
    return Setting(**{name: choices[name] for name in rng.sample(sorted(choices), rng.randint(1, 3))})


def run_at(settings: EngineSettings, knobs: dict[str, Any], workload: TokenWorkload, how: PlaySettings, *, log: bool) -> tuple[Run, Any]:
    """Run the engine itself on the workload."""
    engine = Engine(settings, KnobSet({**KnobSet().values, **knobs}))
    sink = report(engine) if log else None
    played = play(engine, workload, how)
    if engine.reporter:
        engine.reporter.step_ended()
    return Run(sink.payloads if sink else []), played


def trials(
    settings: EngineSettings, knobs: dict[str, Any], workload: TokenWorkload, how: PlaySettings, folder: Path, changes: int, seed: int, *,
    window: tuple[float, float] | None = None,
) -> Iterator[Trial]:
    """Forecasts of `changes` random settings. `window`: shares of the run, by time, that are recorded; None = all of it."""
    rng = random.Random(seed)
    run, _ = run_at(settings, knobs, workload, how, log=True)
    path = run.store(folder / f"honesty-{seed}.duckdb")
    start_ns, end_ns = (run.messages[n].header.wall_ns for n in (0, -1))
    start, end = (_at(start_ns + share * (end_ns - start_ns)) for share in window or (0.0, 1.0))
    reading = Reading() if window is None else Reading(Window(start, end))
    with opened(path) as query:
        recording = read_log(query, reading)
    known = fidelity(recording, tolerance=1.0)
    measured = _counted(recording)
    for _ in range(changes):
        setting = random_setting(rng, settings)
        said = forecast(recording, known, setting)
        given = {name: value for name, value in setting.given.items() if name in KNOB_FIELDS}
        _, played = run_at(setting.engine_on(recording), {**knobs, **given}, workload, how, log=False)
        truth = _truth(played.calls, measured)
        yield from (Trial(setting.label, name, said.estimates[name], truth[name]) for name in COMPARED if name in said.estimates)


def _at(wall_ns: float) -> datetime:
    return datetime(1970, 1, 1) + timedelta(microseconds=wall_ns / 1e3)


def _counted(recording: Any) -> set[tuple[str, int]]:
    """(workflow, position in it) of the calls that are in figures."""
    before = {workflow.name: len(workflow.calls) for workflow in recording.before}
    return {
        (workflow.name, n + before.get(workflow.name, 0)) for workflow in recording.workflows for n, call in enumerate(workflow.calls)
        if recording.measured_from_s <= call.arrived <= recording.measured_to_s
    }


def _truth(calls: Any, measured: set[tuple[str, int]]) -> dict[str, float]:
    """Figures of the same calls in another run. Workflows are named by the order in which they started."""
    numbers = {(int(name.rpartition("-")[2]), n) for name, n in measured}
    places = zip(calls["workflow"].tolist(), calls["step"].tolist(), strict=True)
    kept = [n for n, place in enumerate(places) if place in numbers]
    rows = np.zeros(len(kept), CALL_DTYPE)
    for name in ("prompt", "device_hit", "host_hit", "arrived", "first_token", "ended"):
        rows[name] = calls[name][kept]
    return {name: value for name, value in call_figures(rows).items() if name in FIGURES and not math.isnan(value)}
