"""Plays a token workload on an engine in virtual time: so many workflows at a time, or an open loop where a trace has start times."""

import gc
import heapq
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import numpy as np

from pbkv.engine.engine import Engine
from pbkv.engine.pages import PageNamer
from pbkv.engine.requests import EngineRequest, Finished
from pbkv.errors import UsageError
from pbkv.workloads.tokens import Segment, TokenCall, TokenWorkflow, TokenWorkload

#: Columns of `Played.calls`, one row per call of a measured workflow, in order of their ends.
CALL_DTYPE = np.dtype([
    ("workflow", "<i8"), ("step", "<i4"), ("prompt", "<i8"), ("device_hit", "<i8"), ("host_hit", "<i8"), ("output", "<i8"),
    ("arrived", "<f8"), ("admitted", "<f8"), ("first_token", "<f8"), ("ended", "<f8"), ("retracted", "<i4"),
])


@dataclass(frozen=True)
class PlaySettings:
    """`concurrency` workflows at a time (without meaning for an open loop), the first ones spread evenly over `stagger_s`. Measured are the
    workflows started as number `warm` to `warm` + `workflows` - 1; the load is kept up until the last of them has ended.
    """

    concurrency: int = 96
    workflows: int = 300
    warm: int = 0
    stagger_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.workflows < 1 or self.warm < 0 or self.stagger_s < 0:
            raise UsageError(f"{self}: expected at least one workflow at a time and in all, and nothing negative")


@dataclass(frozen=True)
class Played:
    """What came of it. Hit rates are shares of prompt tokens, times in engine seconds, bytes moved over the link by kind."""

    device_hit: float
    host_hit: float
    hit: float
    ttft_mean: float
    ttft_p50: float
    ttft_p95: float
    workflow_latency_mean: float
    calls_per_s: float
    calls_measured: int
    calls_played: int
    workflows_measured: int
    engine_s: float
    evicted_tokens: int
    evicted_retired_tokens: int
    retractions: int
    backup_bytes: int
    demand_load_bytes: int
    prefetch_bytes: int
    prefetches: int
    calls: np.ndarray = field(repr=False)

    def summary(self) -> dict[str, float]:
        """All figures without the rows."""
        return {name: value for name, value in asdict(self).items() if name != "calls"}


class _Playing:
    """One started workflow."""

    __slots__ = ("number", "workflow", "next", "started")

    def __init__(self, number: int, workflow: TokenWorkflow, started: float) -> None:
        self.number, self.workflow, self.started = number, workflow, started
        self.next = 0


class Player:
    """Feeds one engine from one workload. The n-th workflow started is the same whatever the engine does."""

    def __init__(self, engine: Engine, workload: TokenWorkload, settings: PlaySettings) -> None:
        self._engine, self._settings = engine, settings
        self._supply: Iterator[TokenWorkflow] = workload.workflows(settings.seed)
        self._namer = PageNamer(engine.settings.page_size)
        self._due: list[tuple[float, int, _Playing]] = []
        self._order = 0
        self._inside: dict[int, _Playing] = {}
        self._started = 0
        self._rows: list[tuple[float, ...]] = []
        self._latencies: list[float] = []
        self._until = settings.warm + settings.workflows
        self._left = settings.workflows
        self._played = 0
        self._open = False

    def run(self) -> Played:
        """Play until all measured workflows have ended, or the workload has."""
        self._begin()
        engine, clock, due = self._engine, self._engine.clock, self._due
        while self._left and (due or self._inside):
            for ended in engine.advance(due[0][0] if due else math.inf):
                self._ended(ended)
            while due and due[0][0] <= clock.now:
                at, _, playing = heapq.heappop(due)
                self._submit(playing, at)
        if not self._rows:
            raise UsageError(f"workload: no call of workflows {self._settings.warm} to {self._until - 1} ended; it has {self._started}")
        return self._result()

    # ---- workflows ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        settings = self._settings
        gap = settings.stagger_s / settings.concurrency
        for n in range(settings.concurrency):
            self._start_next(n * gap)
            if self._open:
                break

    def _start_next(self, now: float) -> None:
        """Start the next workflow that has calls; one of an open loop waits for its time, and the one after it is not looked at before."""
        workflow = next((w for w in self._supply if w.calls), None)
        if workflow is None:
            return
        if workflow.start_s is not None:
            self._open, now = True, workflow.start_s
        playing = _Playing(self._started, workflow, now)
        self._started += 1
        self._wait(playing, now)

    def _wait(self, playing: _Playing, now: float) -> None:
        self._order += 1
        heapq.heappush(self._due, (now + playing.workflow.calls[playing.next].delay_s, self._order, playing))

    # ---- calls -------------------------------------------------------------------------------------------------------------

    def _submit(self, playing: _Playing, at: float) -> None:
        workflow = playing.workflow
        call = workflow.calls[playing.next]
        if playing.next == 0 and self._open:
            self._start_next(at)
        self._order += 1
        self._inside[self._order] = playing
        self._engine.submit(self._request(self._order, workflow, call), at)

    def _request(self, number: int, workflow: TokenWorkflow, call: TokenCall) -> EngineRequest:
        output = max(1, call.output.tokens)
        prompt, pages, more = self._namer.call(call.prompt, Segment(call.output.key, output - 1))
        text = None if call.text is None else np.frombuffer(call.text, dtype=np.int8)
        return EngineRequest(
            number, workflow.name, call.agent, pages, prompt, output, more, call.final, workflow.attributed, 0, text,
        )

    def _ended(self, ended: Finished) -> None:
        playing = self._inside.pop(ended.request.id)
        self._played += 1
        if self._settings.warm <= playing.number < self._until:
            request = ended.request
            self._rows.append((
                playing.number, playing.next, request.prompt_tokens, ended.device_hit, ended.host_hit, ended.output_tokens, ended.arrived,
                ended.admitted, ended.first_token, ended.ended, ended.retracted,
            ))
        playing.next += 1
        if playing.next < len(playing.workflow.calls):
            self._wait(playing, ended.ended)
        else:
            self._over(playing, ended.ended)

    def _over(self, playing: _Playing, now: float) -> None:
        if self._settings.warm <= playing.number < self._until:
            self._latencies.append(now - playing.started)
            self._left -= 1
        if not self._open:
            self._start_next(now)

    # ---- result ------------------------------------------------------------------------------------------------------------

    def _result(self) -> Played:
        engine = self._engine
        calls = np.array(self._rows, dtype=CALL_DTYPE)
        prompt = float(calls["prompt"].sum())
        ttft = calls["first_token"] - calls["arrived"]
        device, host = float(calls["device_hit"].sum()) / prompt, float(calls["host_hit"].sum()) / prompt
        page_bytes = engine.copies.bytes_per_page
        demand = engine.scheduler.loaded_pages * page_bytes
        return Played(
            device, host, device + host, float(ttft.mean()), float(np.percentile(ttft, 50)), float(np.percentile(ttft, 95)),
            float(np.mean(self._latencies)) if self._latencies else math.nan, self._played / engine.now if engine.now else 0.0, len(calls),
            self._played, len(self._latencies), engine.now, engine.manager.counts["evicted_tokens"],
            engine.tree.evicted_retired * engine.settings.page_size, engine.retractions, engine.copies.backup_bytes, demand,
            engine.copies.load_bytes - demand, engine.manager.counts["prefetches_issued"], calls,
        )


def play(engine: Engine, workload: TokenWorkload, settings: PlaySettings) -> Played:
    """Play `workload` on a fresh engine. Raises UsageError for a workload without calls, or with calls the engine can never run.

    The garbage collector rests meanwhile: calls, nodes and records leave no cycles behind, and its passes over a full tree would take about
    a third of the time.
    """
    resting = gc.isenabled()
    gc.disable()
    try:
        return Player(engine, workload, settings).run()
    finally:
        if resting:
            gc.enable()
