"""Runs a grid: the recorded setting first, then every setting beside it, over processes, what is known already from a cache."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from pbkv.errors import PbkvError, UsageError
from pbkv.whatif.cache import GridCache
from pbkv.whatif.forecast import Fidelity, Forecast, estimates, fidelity, forecast
from pbkv.whatif.grid import plain
from pbkv.whatif.pool import work_through
from pbkv.whatif.recording import Recording
from pbkv.whatif.setting import Setting

Stop = Callable[[], bool]
MAX_WORKERS = 64


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
        self._cells: dict[Setting, GridCell] = {}
        self._known: Fidelity | None = None
        self._replayed = self._free = self._left = 0
        self._started = time.perf_counter()

    def run(self) -> Grid:
        stored = self._stored()
        missing = [setting for setting in self._asked if setting not in stored]
        self._left = sum(setting != self._as_recorded for setting in missing)
        self._known = self._cache.fidelity() if self._cache and not missing else None
        if self._known is None and not self._learn():
            return self._grid(stopped=True)
        for setting, found in stored.items():
            self._found(setting, found, known=True)
        if self._as_recorded in missing:
            missing.remove(self._as_recorded)
            self._found(self._as_recorded, self._present(), known=True)
        self._replay(missing)
        return self._grid(stopped=len(self._cells) < len(self._settings))

    def _stored(self) -> dict[Setting, Forecast]:
        """What the cache has of the settings."""
        found = {setting: self._cache.forecast(setting) for setting in self._asked} if self._cache else {}
        return {setting: forecast for setting, forecast in found.items() if forecast is not None}

    def _learn(self) -> bool:
        """Replay the recorded setting; False when stopped. In a process like the others, so that one that is killed is survived."""
        def work(task: int, progress: Callable[[int], None], stop: Stop) -> Fidelity:
            return fidelity(self._recording, stop=stop, progress=progress)

        (done,) = work_through([0], work, 1, stop=self._stop, tick=self._tick_first)
        if isinstance(done.error, PbkvError):
            raise done.error
        if done.error is not None:
            raise PbkvError(f"the recorded setting could not be replayed: {_said(done.error)}")
        if not done.value.present.complete:
            return False
        self._known = done.value
        self._replayed = 1
        if self._cache:
            self._cache.keep_fidelity(done.value)
        return True

    def _present(self) -> Forecast:
        assert self._known is not None
        present = self._known.present
        found = _lean(Forecast(self._as_recorded, estimates(self._known, present), present))
        if self._cache:
            self._cache.keep(self._as_recorded, found)
        return found

    def _replay(self, settings: Sequence[Setting]) -> None:
        known, recording = self._known, self._recording
        assert known is not None

        def work(task: int, progress: Callable[[int], None], stop: Stop) -> Forecast:
            return _lean(forecast(recording, known, settings[task], stop=stop, progress=progress))

        began = time.perf_counter()
        tick = partial(self._tick, began)
        for done in work_through(range(len(settings)), work, min(self._workers, len(settings)), stop=self._stop, tick=tick):
            if done.error is not None:
                self._left -= 1
                self._found(settings[done.task], None, _said(done.error))
            elif done.value.outcome.complete:
                self._left -= 1
                self._replayed += 1
                if self._cache:
                    self._cache.keep(settings[done.task], done.value)
                self._found(settings[done.task], done.value)

    def _found(self, setting: Setting, found: Forecast | None, error: str = "", *, known: bool = False) -> None:
        for n, asked in enumerate(self._asked[setting]):
            self._free += known or n > 0
            cell = self._cells[asked] = GridCell(asked, found and replace(found, setting=asked), error, known or n > 0)
            if self._on_cell:
                self._on_cell(cell)

    # ---- how long still: all replays of a recording have the same calls -----------------------------------------------------

    def _tick_first(self, under_way: list[int]) -> None:
        """The recorded setting is replayed alone, the others will be side by side."""
        part = self._part(under_way)
        self._tell((1.0 - part + self._left / self._workers) * (time.perf_counter() - self._started) / part if part > 0.02 else math.nan)

    def _tick(self, began: float, under_way: list[int]) -> None:
        part = self._part(under_way)
        worked = self._replayed - 1 + part
        self._tell((self._left - part) * (time.perf_counter() - began) / worked if worked > 0.02 else math.nan)

    def _part(self, under_way: list[int]) -> float:
        return sum(min(1.0, calls / self._recording.calls) for calls in under_way)

    def _tell(self, left_s: float) -> None:
        if self._on_pace:
            self._on_pace(Pace(len(self._cells), len(self._settings), self._free, max(left_s, 0.0)))

    def _grid(self, *, stopped: bool) -> Grid:
        cells = tuple(self._cells[setting] for setting in self._settings if setting in self._cells)
        if self._cache:
            self._cache.prune()
        return Grid(self._recording, self._settings, self._known, cells, stopped, self._replayed, time.perf_counter() - self._started)


def _lean(found: Forecast) -> Forecast:
    """Without rows per call: those of a whole grid would not fit into memory."""
    return replace(found, outcome=replace(found.outcome, calls=found.outcome.calls[:0]))


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, PbkvError) else f"{type(error).__name__}: {error}"
