"""Plays a recording on a fresh embedded engine at another setting, closed loop: a call waits for the calls it waited for."""

import gc
import heapq
import math
from collections.abc import Callable, Iterator

import numpy as np

from pbkv.engine.engine import Engine
from pbkv.engine.requests import EngineRequest, Finished
from pbkv.errors import UsageError
from pbkv.predictor.base import Predictor
from pbkv.whatif.outcome import CALL_DTYPE, FIGURES, Outcome, call_figures
from pbkv.whatif.recording import NOWHERE, RecordedCall, RecordedWorkflow, Recording
from pbkv.whatif.setting import Setting

#: Calls between two looks at `stop` and reports of progress.
LOOK_EVERY = 256


class _Playing:
    """A started workflow: what is left, and which calls wait for which."""

    __slots__ = ("left", "number", "started", "waiting", "workflow")

    def __init__(self, number: int, workflow: RecordedWorkflow, started: float) -> None:
        self.number, self.workflow, self.started = number, workflow, started
        self.left = len(workflow.calls)
        self.waiting: dict[int, list[int]] = {}
        for n, call in enumerate(workflow.calls):
            self.waiting.setdefault(call.after, []).append(n)


class Replayer:
    """Feeds one engine from one recording."""

    def __init__(self, engine: Engine, recording: Recording, concurrency: int | None) -> None:
        self.engine, self._recording, self._concurrency = engine, recording, concurrency
        self._supply: Iterator[tuple[int, RecordedWorkflow]] = iter(enumerate(recording.workflows))
        self._due: list[tuple[float, int, _Playing, int]] = []
        self._inside: dict[int, tuple[_Playing, int]] = {}
        self._order = 0
        self._rows: list[tuple[float, ...]] = []
        self._latencies: list[float] = []

    def run(self, stop: Callable[[], bool] | None = None, progress: Callable[[int], None] | None = None) -> Outcome:
        """Play until the last call has ended, or `stop()`. `progress` is told the number of calls that have ended."""
        self._begin()
        engine, due = self.engine, self._due
        looked = 0
        while due or self._inside:
            for ended in engine.advance(due[0][0] if due else math.inf):
                self._ended(ended)
            while due and due[0][0] <= engine.clock.now:
                at, _, playing, n = heapq.heappop(due)
                self._submit(playing, n, at)
            if len(self._rows) - looked >= LOOK_EVERY:
                looked = len(self._rows)
                if progress is not None:
                    progress(looked)
                if stop is not None and stop():
                    return self._outcome(complete=False)
        return self._outcome(complete=True)

    # ---- workflows ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._concurrency is None:
            self._start_next(0.0)
            return
        gap = self._recording.stagger_s / self._concurrency
        for n in range(self._concurrency):
            self._start_next(n * gap)

    def _start_next(self, now: float) -> None:
        number, workflow = next(self._supply, (NOWHERE, None))
        if workflow is None:
            return
        playing = _Playing(number, workflow, workflow.start_s if self._concurrency is None else now)
        self._release(playing, NOWHERE, playing.started)

    def _release(self, playing: _Playing, ended: int, at: float) -> None:
        """The calls that waited for call `ended`. Where it ended at the very time it was recorded to, they come at theirs: adding the delay
        could differ by a rounding.
        """
        calls = playing.workflow.calls
        as_recorded = at == (calls[ended].ended if ended != NOWHERE else playing.workflow.start_s)
        for n in playing.waiting.get(ended, ()):
            call = calls[n]
            due = call.arrived if as_recorded and not math.isnan(call.arrived) else at + call.delay_s
            self._order += 1
            heapq.heappush(self._due, (due, self._order, playing, n))

    # ---- calls -------------------------------------------------------------------------------------------------------------

    def _submit(self, playing: _Playing, n: int, at: float) -> None:
        if n == 0 and self._concurrency is None:
            self._start_next(at)
        self._order += 1
        self._inside[self._order] = (playing, n)
        self.engine.submit(_request(self._order, playing.workflow, playing.workflow.calls[n]), at)

    def _ended(self, ended: Finished) -> None:
        playing, n = self._inside.pop(ended.request.id)
        self._rows.append((
            playing.number, n, ended.request.prompt_tokens, ended.device_hit, ended.host_hit, ended.output_tokens, ended.arrived,
            ended.admitted, ended.first_token, ended.ended,
        ))
        playing.left -= 1
        self._release(playing, n, ended.ended)
        if not playing.left:
            self._latencies.append(ended.ended - playing.started)
            if self._concurrency is not None:
                self._start_next(ended.ended)

    # ---- result ------------------------------------------------------------------------------------------------------------

    def _outcome(self, *, complete: bool) -> Outcome:
        engine = self.engine
        calls = np.array(self._rows, dtype=CALL_DTYPE)
        page, page_bytes = engine.settings.page_size, engine.copies.bytes_per_page
        retired, demand = engine.tree.evicted_retired * page, engine.scheduler.loaded_pages * page_bytes
        figures = dict.fromkeys(FIGURES, math.nan) | call_figures(calls) | {
            "latency_mean": float(np.mean(self._latencies)) if self._latencies else math.nan,
            "calls_per_s": len(calls) / engine.now if engine.now else math.nan,
            "evicted_retired": retired, "evicted_live": engine.manager.counts["evicted_tokens"] - retired,
            "backup_bytes": engine.copies.backup_bytes, "demand_bytes": demand, "prefetch_bytes": engine.copies.load_bytes - demand,
            "moved_bytes": engine.copies.backup_bytes + engine.copies.load_bytes, "prefetches": engine.manager.counts["prefetches_issued"],
        }
        return Outcome(figures, calls, engine.now, complete)


def _request(number: int, workflow: RecordedWorkflow, call: RecordedCall) -> EngineRequest:
    return EngineRequest(
        number, workflow.name, call.agent, call.pages, call.prompt_tokens, call.output_tokens, call.output_pages, call.final,
        workflow.attributed, call.max_tokens, call.text,
    )


def replay(
    recording: Recording, setting: Setting | None = None, *, predictor: Predictor | None = None,
    stop: Callable[[], bool] | None = None, progress: Callable[[int], None] | None = None,
) -> Outcome:
    """What `recording` would have come to at `setting`. Raises UsageError for an empty recording, or a setting that cannot be.

    The garbage collector rests meanwhile, as in pbkv.engine.play.
    """
    setting = setting or Setting()
    if not recording.calls:
        raise UsageError(f"{recording.name}: no calls to replay; record for longer, or take a wider window")
    engine = Engine(setting.engine_on(recording), setting.knobs_on(recording), predictor)
    concurrency = recording.concurrency if setting.concurrency is None else setting.concurrency
    resting = gc.isenabled()
    gc.disable()
    try:
        return Replayer(engine, recording, concurrency).run(stop, progress)
    finally:
        if resting:
            gc.enable()
