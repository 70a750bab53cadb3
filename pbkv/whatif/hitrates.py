"""Hit rates of a recording with the cache alone. Changes of knobs in the recording and its start state are left out."""

import gc
import math
from collections.abc import Callable, Sequence

import numpy as np

from pbkv.errors import UsageError
from pbkv.predictor.base import Predictor
from pbkv.whatif.bound import Bound
from pbkv.whatif.cachealone import CacheAlone
from pbkv.whatif.order import Turn, order_of
from pbkv.whatif.outcome import CALL_DTYPE, FIGURES, Outcome, call_figures
from pbkv.whatif.recording import Recording
from pbkv.whatif.setting import Setting

#: Figures that a replay without time has; the others are nan.
CACHE_FIGURES = ("hit_device", "hit_host", "hit", "evicted_retired", "evicted_live", "backup_bytes", "demand_bytes", "moved_bytes")
#: Calls between two looks at `stop` and reports of progress.
LOOK_EVERY = 1024
#: Seconds of the order's clock between looks for workflows that have been idle for too long.
TICK_S = 1.0
_COLUMNS = ("workflow", "call", "prompt", "device_hit", "host_hit", "output")


def replay_cache(
    recording: Recording, setting: Setting | None = None, *, bound: Bound | None = None, turns: Sequence[Turn] | None = None,
    predictor: Predictor | None = None, each: Callable[[int], None] | None = None, stop: Callable[[], bool] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Hit rates at `setting`, calls in the order `turns`, by default `order_of(recording)`. `bound` takes the place of its policy.
    `each` is told the position of a turn before it is played, `progress` the number of turns now and then. Calls that do not fit into the
    device pool are refused, as a server would: `Outcome.calls` has no row for them.

    Raises UsageError for an empty recording, a setting that cannot be, and a pool that no call fits into.
    """
    setting = setting or Setting()
    if not recording.calls:
        raise UsageError(f"{recording.name}: no calls to replay; record for longer, or take a wider window")
    cache = CacheAlone(setting.engine_on(recording), setting.knobs_on(recording), predictor, bound)
    turns = order_of(recording, setting.concurrency) if turns is None else turns
    resting = gc.isenabled()
    gc.disable()  # as in pbkv.engine.play
    try:
        return _Played(cache, recording).run(turns, each or _nothing, stop or _never, progress or _nothing)
    finally:
        if resting:
            gc.enable()


class _Played:
    """Plays turns, and keeps a row of each call that was not refused."""

    def __init__(self, cache: CacheAlone, recording: Recording) -> None:
        self._cache, self._recording = cache, recording
        self._left = [len(workflow.calls) for workflow in recording.workflows]
        self._rows: list[tuple[int, int, int, int, int, int]] = []

    def run(
        self, turns: Sequence[Turn], each: Callable[[int], None], stop: Callable[[], bool], progress: Callable[[int], None],
    ) -> Outcome:
        ticked, tick = 0.0, self._cache.manager.state.tick
        for done, turn in enumerate(turns):
            if done % LOOK_EVERY == LOOK_EVERY - 1:
                progress(done)
                if stop():
                    return self._outcome(complete=False)
            each(done)
            if turn.at - ticked >= TICK_S:
                ticked = turn.at
                tick(ticked)
            self._play(turn)
        return self._outcome(complete=True)

    def _play(self, turn: Turn) -> None:
        cache, page, number = self._cache, self._cache.page_size, turn.workflow
        workflow = self._recording.workflows[number]
        call = workflow.calls[turn.call]
        found = cache.play(workflow, call)
        if found is not None:
            device, host = found
            self._rows.append((number, turn.call, call.prompt_tokens, device * page, host * page, call.output_tokens))
        self._left[number] -= 1
        if not self._left[number] and not math.isnan(workflow.closed_s):
            cache.manager.state.close(workflow.name)

    def _outcome(self, *, complete: bool) -> Outcome:
        if not self._rows:
            size = self._cache.tree.device.size * self._cache.page_size
            raise UsageError(f"{self._recording.name}: no call fits into device_tokens = {size}; take a larger pool")
        return Outcome(self._figures(calls := _rows(self._rows)), calls, complete=complete)

    def _figures(self, calls: np.ndarray) -> dict[str, float]:
        cache, engine = self._cache, self._recording.engine
        page, page_bytes = cache.page_size, cache.page_size * engine.timing.bytes_per_token
        retired, copies = cache.tree.evicted_retired * page, cache.copies
        backup, demand = copies.backup_pages * page_bytes, copies.load_pages * page_bytes
        found = call_figures(calls) | {
            "evicted_retired": retired, "evicted_live": cache.manager.counts["evicted_tokens"] - retired, "backup_bytes": backup,
            "demand_bytes": demand, "moved_bytes": backup + demand,
        }
        return {name: found[name] if name in CACHE_FIGURES else math.nan for name in FIGURES}


def _nothing(done: int) -> None:
    """Nobody wants to know."""


def _never() -> bool:
    return False


def _rows(rows: list[tuple[int, int, int, int, int, int]]) -> np.ndarray:
    calls = np.zeros(len(rows), dtype=CALL_DTYPE)
    for name, column in zip(_COLUMNS, np.array(rows, np.int64).T, strict=True):
        calls[name] = column
    for name in ("arrived", "admitted", "first_token", "ended"):
        calls[name] = math.nan
    return calls
