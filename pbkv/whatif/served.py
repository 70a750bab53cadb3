"""A replay on the steps that a server took: calls arrive when they did, and each step ends when the server's did.

What then differs from the measured is what the model of cache and scheduler gets wrong, without what it gets wrong about time. Where steps
take as long as chance has it, on a busy machine for instance, only this tells the two apart. It says nothing of other settings.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pbkv.engine.engine import Engine
from pbkv.whatif.logwindow import Query, Window, columns_of, fetch, find_span
from pbkv.whatif.outcome import Outcome
from pbkv.whatif.planting import plant
from pbkv.whatif.predictors import predictor_for
from pbkv.whatif.recording import NOWHERE, RecordedWorkflow, Recording
from pbkv.whatif.replay import Replayer
from pbkv.whatif.setting import Setting

DECODE = 2
#: Both clocks of a message: rows that carry the server's own.
_CLOCKS = """
SELECT min(epoch_us(t) / 1e6 - at_s)::DOUBLE AS apart FROM (
SELECT t, at_s FROM raw.workflow WHERE src = $src UNION ALL SELECT t, at_s FROM raw.setting WHERE src = $src) WHERE at_s > 0"""


def step_ends(query: Query, window: Window) -> np.ndarray:
    """[N] f64, ascending: when the steps of the window ended, s of the server's clock; empty where the log does not relate its clocks."""
    span = find_span(query, window)
    apart = query(_CLOCKS, {"src": span.src}).to_pylist()[0]["apart"]
    columns = columns_of(fetch(query, "batch", "mode, requests, tokens, duration_us, (epoch_us(t) / 1e6)::DOUBLE AS at", span))
    if apart is None or not columns:
        return np.empty(0)
    at, took = columns["at"] - apart, columns["duration_us"].astype(float) / 1e6
    # A row of the embedded engine may cover several decode steps.
    steps = np.where(columns["mode"] == DECODE, columns["tokens"] // np.maximum(1, columns["requests"]), 1)
    steps = np.maximum(1, steps).astype(int)
    left = np.repeat(np.cumsum(steps), steps) - 1 - np.arange(int(steps.sum()))
    return np.sort(np.repeat(at, steps) - left * np.repeat(took / steps, steps))


class SteppedEngine(Engine):
    """Its steps end when those of a server did; beyond the last one, by its timing."""

    ends: np.ndarray

    def _after(self, at: float, steps: int) -> float | None:
        """When the `steps`-th step after `at` ended; None = the server took no such step."""
        place = int(np.searchsorted(self.ends, at, side="right")) + steps - 1
        return float(self.ends[place]) if place < len(self.ends) else None

    def _prefill_end(self, started: float, compute: float) -> float:
        return self._after(started, 1) or super()._prefill_end(started, compute)

    def _prefetch(self, steps: int) -> int:
        """A server decides in every step; taking several at once would miss what becomes possible in between."""
        decided = super()._prefetch(steps)
        return 1 if self._tiered and self.knobs["prefetch"] != "off" else decided

    def _decode_s(self, steps: int) -> float:
        end = self._after(self.clock.now, steps)
        return super()._decode_s(steps) if end is None else end - self.clock.now


def replay_served(recording: Recording, ends: np.ndarray, *, watch: Callable[[Engine], None] | None = None) -> Outcome:
    """The recorded setting on the steps that ended at `ends`. Calls that were recorded without times come after their predecessors."""
    predictor, bind = predictor_for(recording, None)
    setting = Setting()
    engine = SteppedEngine(setting.engine_on(recording), setting.knobs_on(recording), predictor)
    engine.ends = ends
    bind(engine.manager.state)
    engine.clock.now = engine.ticked = recording.began_s
    if watch is not None:
        watch(engine)
    plant(engine, recording)
    fixed = replace(recording, workflows=tuple(_as_they_came(each) for each in recording.workflows), concurrency=None)
    return Replayer(engine, fixed, None, recording.changes).run()


def _as_they_came(workflow: RecordedWorkflow) -> RecordedWorkflow:
    """Calls wait for nothing but their time."""
    if any(math.isnan(call.arrived) for call in workflow.calls):
        return workflow
    start = min(call.arrived for call in workflow.calls)
    calls = tuple(call._replace(after=NOWHERE, delay_s=call.arrived - start) for call in workflow.calls)
    return workflow._replace(calls=calls, start_s=start)
