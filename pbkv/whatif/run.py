"""Runs a grid over processes: the recorded setting and every setting beside it, what is known already from a cache."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pbkv.errors import PbkvError, UsageError
from pbkv.whatif.cache import GridCache
from pbkv.whatif.forecast import Fidelity, Forecast, estimates, fidelity
from pbkv.whatif.grid import plain
from pbkv.whatif.outcome import Outcome
from pbkv.whatif.pool import Done, work_through
from pbkv.whatif.recording import Recording
from pbkv.whatif.replay import replay
from pbkv.whatif.setting import Setting

Stop = Callable[[], bool]
MAX_WORKERS = 64
#: Number of the task that replays the recorded setting.
_PRESENT = -1
#: Replays, in part, before time left is told.
_LEAST_PART = 0.02


@dataclass(frozen=True)
class GridCell:
    """One setting of a grid: what it would have come to, or the `error` that kept it from being known. `known`: from the cache, or the
    same as one that was replayed.
    """

    setting: Setting
    forecast: Forecast | None
    error: str = ""
    known: bool = False


class Pace(NamedTuple):
    """How far a grid is: settings done and to do, those among `done` that needed no replay, and seconds left (nan: nothing to go by)."""

    done: int
    total: int
    known: int
    left_s: float


@dataclass(frozen=True)
class Grid:
    """`cells` in order of the settings asked for, those that were reached. `fidelity` None: stopped before the recorded setting was
    replayed.
    """

    recording: Recording
    asked: tuple[Setting, ...]
    fidelity: Fidelity | None
    cells: tuple[GridCell, ...] = ()
    stopped: bool = False
    replayed: int = 0
    took_s: float = field(default=0.0, compare=False)

    @property
    def forecasts(self) -> list[Forecast]:
        """Of the cells that have one."""
        return [cell.forecast for cell in self.cells if cell.forecast is not None]


def run_grid(
    recording: Recording, settings: Sequence[Setting], *, workers: int = 2, cache: GridCache | None = None,
    on_cell: Callable[[GridCell], None] | None = None, on_pace: Callable[[Pace], None] | None = None, stop: Stop | None = None,
) -> Grid:
    """Forecasts of all settings; no settings: the recorded one alone. A setting that fails is reported and the rest goes on.

    `on_cell` is told of cells as they are found, `on_pace` several times a second, both in this thread. After `stop()` what was found is
    returned. Raises UsageError for a recording that cannot be replayed, Refused for one that cannot be trusted.
    """
    if not 1 <= workers <= MAX_WORKERS:
        raise UsageError(f"workers = {workers}: expected 1 to {MAX_WORKERS} processes")
    if not recording.calls:
        raise UsageError(f"{recording.name}: no calls to replay; record for longer, or take a wider window")
    return _Run(recording, tuple(settings), workers, cache, on_cell, on_pace, stop or (lambda: False)).run()


class _Run:
    """One grid on its way."""

    def __init__(
        self, recording: Recording, settings: tuple[Setting, ...], workers: int, cache: GridCache | None,
        on_cell: Callable[[GridCell], None] | None, on_pace: Callable[[Pace], None] | None, stop: Stop,
    ) -> None:
        self._recording, self._settings, self._workers, self._cache = recording, settings, workers, cache
        self._on_cell, self._on_pace, self._stop = on_cell, on_pace, stop
        self._as_recorded = plain(Setting(), recording)
        self._asked: dict[Setting, list[Setting]] = {}  # what is replayed -> settings that come to the same
        for setting in settings:
            self._asked.setdefault(plain(setting, recording), []).append(setting)
        self._waiting: list[tuple[Setting, Outcome, bool]] = []  # until the recorded setting is replayed, beside which they are put
        self._cells: dict[Setting, GridCell] = {}
        self._known: Fidelity | None = None
        self._replayed = self._free = self._left = 0
        self._started = time.perf_counter()

    def run(self) -> Grid:
        self._known = self._cache.fidelity() if self._cache else None
        missing: list[Setting] = []
        for setting in self._asked:
            outcome = self._cache.outcome(setting) if self._cache else None
            if outcome is not None:
                self._found(setting, outcome, known=True)
            elif setting != self._as_recorded:
                missing.append(setting)
        if self._known is not None:
            self._learned(self._known)
        self._replay(missing)
        return self._grid()

    def _replay(self, settings: Sequence[Setting]) -> None:
        recording = self._recording

        def work(task: int, progress: Callable[[int], None], stop: Stop) -> Fidelity | Outcome:
            if task == _PRESENT:
                known = fidelity(recording, stop=stop, progress=progress)
                return replace(known, present=_lean(known.present))
            return _lean(replay(recording, settings[task], stop=stop, progress=progress))

        tasks = [*([_PRESENT] if self._known is None else []), *range(len(settings))]
        self._left = len(tasks)
        for done in work_through(tasks, work, min(self._workers, len(tasks)), stop=self._stop, tick=self._tick):
            self._left -= 1
            if done.task == _PRESENT:
                self._took_present(done)
            elif done.error is not None:
                self._tell_of(settings[done.task], None, _said(done.error))
            elif done.value.complete:
                self._replayed += 1
                if self._cache:
                    self._cache.keep(settings[done.task], done.value)
                self._found(settings[done.task], done.value)

    def _took_present(self, done: Done) -> None:
        """Without the recorded setting there is no grid."""
        if isinstance(done.error, PbkvError):
            raise done.error
        if done.error is not None:
            raise PbkvError(f"the recorded setting could not be replayed: {_said(done.error)}")
        if not done.value.present.complete or self._stop():
            return  # stopped within it: its error would look smaller than it is
        self._replayed += 1
        if self._cache:
            self._cache.keep_fidelity(done.value)
        self._learned(done.value)

    def _learned(self, known: Fidelity) -> None:
        self._known = known
        waiting, self._waiting = self._waiting, []
        if self._as_recorded in self._asked:
            self._found(self._as_recorded, known.present, known=True)
        for setting, outcome, from_cache in waiting:
            self._found(setting, outcome, known=from_cache)

    def _found(self, setting: Setting, outcome: Outcome, *, known: bool = False) -> None:
        if self._known is None:
            self._waiting.append((setting, outcome, known))
        else:
            self._tell_of(setting, Forecast(setting, estimates(self._known, outcome), outcome), known=known)

    def _tell_of(self, setting: Setting, found: Forecast | None, error: str = "", *, known: bool = False) -> None:
        for n, asked in enumerate(self._asked[setting]):
            self._free += known or n > 0
            cell = self._cells[asked] = GridCell(asked, found and replace(found, setting=asked), error, known or n > 0)
            if self._on_cell:
                self._on_cell(cell)

    def _tick(self, under_way: list[int]) -> None:
        """How long still: all replays of a recording have the same calls."""
        if self._on_pace is None:
            return
        part = sum(min(1.0, calls / self._recording.calls) for calls in under_way)
        worked = self._replayed + part
        left_s = (self._left - part) * (time.perf_counter() - self._started) / worked if worked > _LEAST_PART else math.nan
        self._on_pace(Pace(len(self._cells), len(self._settings), self._free, left_s))

    def _grid(self) -> Grid:
        cells = tuple(self._cells[setting] for setting in self._settings if setting in self._cells)
        if self._cache:
            self._cache.prune()
        stopped = self._known is None or len(cells) < len(self._settings)
        return Grid(self._recording, self._settings, self._known, cells, stopped, self._replayed, time.perf_counter() - self._started)


def _lean(outcome: Outcome) -> Outcome:
    """Without rows per call: those of a whole grid would not fit into memory."""
    return replace(outcome, calls=outcome.calls[:0])


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, PbkvError) else f"{type(error).__name__}: {error}"
