"""Plays a recording on a fresh embedded engine at another setting, closed loop: a call waits for the calls it waited for."""

import gc
import heapq
import math
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter

from pbkv.engine.engine import Engine
from pbkv.engine.requests import EngineRequest, Finished
from pbkv.errors import UsageError
from pbkv.predictor.base import Predictor
from pbkv.whatif.meter import Meter
from pbkv.whatif.outcome import Outcome
from pbkv.whatif.planting import plant
from pbkv.whatif.predictors import predictor_for
from pbkv.whatif.recording import LAST, NOWHERE, KnobChange, RecordedCall, RecordedWorkflow, Recording
from pbkv.whatif.setting import Setting

#: Calls between two looks at `stop` and reports of progress.
LOOK_EVERY = 256
#: Order of what has no place in the order of arrivals: after everything that has one.
_UNPLACED = 1 << 62


class _Playing:
    """A started workflow: what is left, and which calls wait for which. `inside`: ids of its calls in the engine, by position."""

    __slots__ = ("inside", "left", "number", "started", "waiting", "workflow")

    def __init__(self, number: int, workflow: RecordedWorkflow, started: float) -> None:
        self.number, self.workflow, self.started = number, workflow, started
        self.left = len(workflow.calls)
        self.inside: dict[int, int] = {}
        self.waiting: dict[int, list[int]] = {}
        for n, call in enumerate(workflow.calls):
            self.waiting.setdefault(call.after, []).append(n)

    def first_due(self, at: float) -> float:
        """When its first call comes, if it starts at `at`."""
        return min((_due(self.workflow.calls[n], at, self.workflow.start_s) for n in self.waiting.get(NOWHERE, ())), default=at)


def _due(call: RecordedCall, at: float, recorded: float) -> float:
    """When a call comes whose predecessor ended at `at` instead of at `recorded`. Where it ended at the very time it was recorded to, the
    call comes at its own: adding the delay could differ by a rounding.
    """
    return call.arrived if at == recorded and not math.isnan(call.arrived) else at + call.delay_s


class Replayer:
    """Feeds one engine from one recording.

    What is due lies in a heap by time. What is due at the same look at the engine happens in the order in which it arrived when it was
    recorded, where that is known: without that, a replay at the recorded setting would put calls of one instant into another order.
    """

    def __init__(self, engine: Engine, recording: Recording, concurrency: int | None, changes: tuple[KnobChange, ...] = ()) -> None:
        self.engine, self._recording, self._concurrency = engine, recording, concurrency
        self._as_recorded = concurrency is None or concurrency == recording.concurrency
        self._supply = iter(enumerate(recording.workflows))
        self._due: list[tuple[float, int, int, Callable[..., object], tuple[object, ...]]] = []
        self._inside: dict[int, tuple[_Playing, int]] = {}
        self._order = 0
        self._meter = Meter(engine, recording)
        for at, together in groupby(changes, key=attrgetter("at_s")):
            made = tuple(together)
            self._at(at, 2 * made[0].place + 1, self._turn, *made)

    def run(self, stop: Callable[[], bool] | None = None, progress: Callable[[int], None] | None = None) -> Outcome:
        """Play until the last call has ended, or `stop()`. `progress` is told the number of calls that have ended."""
        self._begin()
        engine, due, rows = self.engine, self._due, self._meter.rows
        looked = 0
        while due or self._inside:
            for ended in engine.advance(due[0][0] if due else math.inf):
                self._ended(ended)
            self._meter.look()
            while due and due[0][0] <= engine.clock.now:
                self._take_due()
            if len(rows) - looked >= LOOK_EVERY:
                looked = len(rows)
                if progress is not None:
                    progress(looked)
                if stop is not None and stop():
                    return self._meter.outcome(complete=False)
        return self._meter.outcome(complete=True)

    # ---- time --------------------------------------------------------------------------------------------------------------

    def _at(self, at: float, place: int, action: Callable[..., object], *given: object) -> None:
        self._order += 1
        heapq.heappush(self._due, (at, self._order, place, action, given))

    def _take_due(self) -> None:
        """Everything that is due. Starts come first: they only add what is due."""
        due, now, ready = self._due, self.engine.clock.now, list[tuple[int, float, int, Callable[..., object], tuple[object, ...]]]()
        while due and due[0][0] <= now:
            at, order, place, action, given = heapq.heappop(due)
            if action == self._start:
                self._start(*given)  # type: ignore[arg-type]
            else:
                ready.append((place, at, order, action, given))
        if len(ready) > 1:
            ready.sort()
        for _, _, _, action, given in ready:
            action(*given)

    # ---- workflows ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        concurrency = self._concurrency
        if concurrency is None:
            self._next_workflow(0.0)
            return
        gap = self._recording.stagger_s / concurrency
        for n in range(concurrency):
            self._next_workflow(self._recording.began_s + n * gap, first=True)

    def _next_workflow(self, now: float, *, first: bool = False) -> None:
        number, workflow = next(self._supply, (NOWHERE, None))
        if workflow is None:
            return
        recorded = self._concurrency is None or (first and self._as_recorded and self._recording.timed)
        playing = _Playing(number, workflow, workflow.start_s if recorded else now)
        self._at(playing.first_due(playing.started), 0, self._start, playing)

    def _start(self, playing: _Playing) -> None:
        if self._concurrency is None:
            self._next_workflow(playing.started)
        self._release(playing, NOWHERE, playing.started)

    def _release(self, playing: _Playing, ended: int, at: float) -> None:
        """What waited for call `ended`: calls, and the close."""
        workflow = playing.workflow
        recorded = workflow.calls[ended].ended if ended != NOWHERE else workflow.start_s
        for n in playing.waiting.get(ended, ()):
            call = workflow.calls[n]
            due = _due(call, at, recorded)
            self._at(due, 2 * call.place if call.place and at == recorded else _UNPLACED, self._submit, playing, n, due)
        closes = workflow.close_after == ended or (workflow.close_after == LAST and not playing.left)
        if closes and not math.isnan(workflow.closed_s):
            exact = at == recorded and not math.isnan(workflow.closed_at)
            self._at(workflow.closed_at if exact else at + workflow.closed_s, 0, self.engine.close, workflow.name)

    # ---- calls -------------------------------------------------------------------------------------------------------------

    def _submit(self, playing: _Playing, n: int, at: float) -> None:
        self._order += 1
        number, call = self._order, playing.workflow.calls[n]
        self._inside[number] = (playing, n)
        self.engine.submit(_request(number, playing.workflow, call), at)
        if call.aborted and not math.isnan(call.ended):
            self._at(call.ended if at == call.arrived else at + call.ended - call.arrived, 0, self._abort, number)

    def _abort(self, number: int) -> None:
        ended = self.engine.abort(number) if number in self._inside else None
        if ended is not None:
            self._ended(ended)

    def _ended(self, ended: Finished) -> None:
        playing, n = self._inside.pop(ended.request.id)
        playing.left -= 1
        self._meter.call(playing.number, n, ended, playing.started, last=not playing.left)
        self._release(playing, n, ended.ended)
        if not playing.left and self._concurrency is not None:
            self._next_workflow(ended.ended)

    def _turn(self, *changes: KnobChange) -> None:
        manager = self.engine.manager
        knobs, wanted = manager.knobs, {change.name: change.value for change in changes}
        made = knobs.apply(wanted, if_version=knobs.version, step=manager.step, actor="replay", reason="as recorded")
        manager.knobs_changed(set(wanted))
        if manager.telemetry:
            for change in made:
                manager.telemetry.knob(change)
            manager.telemetry.end_step(manager.step)


def _request(number: int, workflow: RecordedWorkflow, call: RecordedCall) -> EngineRequest:
    return EngineRequest(
        number, workflow.name, call.agent, call.pages, call.prompt_tokens, call.output_tokens, call.output_pages, call.final,
        workflow.attributed, call.max_tokens, call.text,
    )


def replay(
    recording: Recording, setting: Setting | None = None, *, predictor: Predictor | None = None,
    stop: Callable[[], bool] | None = None, progress: Callable[[int], None] | None = None,
    watch: Callable[[Engine], None] | None = None,
) -> Outcome:
    """What `recording` would have come to at `setting`. Raises UsageError for an empty recording, or a setting that cannot be.

    A knob that `setting` gives stays as it says; recorded changes of the others happen when they did. `predictor`: instead of the one the
    setting or the recording names. `watch` is given the engine before anything runs, for instance to have it report.
    The garbage collector rests meanwhile, as in pbkv.engine.play.
    """
    setting = setting or Setting()
    if not recording.calls:
        raise UsageError(f"{recording.name}: no calls to replay; record for longer, or take a wider window")
    predictor, bind = (predictor, None) if predictor else predictor_for(recording, setting.predictor)
    engine = Engine(setting.engine_on(recording), setting.knobs_on(recording), predictor)
    if bind is not None:
        bind(engine.manager.state)
    engine.clock.now = engine.ticked = recording.began_s
    if watch is not None:
        watch(engine)
    plant(engine, recording)
    given = setting.given
    changes = tuple(change for change in recording.changes if change.name not in given)
    concurrency = recording.concurrency if setting.concurrency is None else setting.concurrency
    resting = gc.isenabled()
    gc.disable()
    try:
        return Replayer(engine, recording, concurrency, changes).run(stop, progress)
    finally:
        if resting:
            gc.enable()
