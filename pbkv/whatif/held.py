"""Recordings that a forecast process keeps: what was read, how well it is replayed, and what has been found for it."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pbkv.errors import UsageError
from pbkv.whatif.cache import GridCache
from pbkv.whatif.digest import digest
from pbkv.whatif.forecast import JITTERS, Fidelity, Refused, fidelity, forecast
from pbkv.whatif.grid import parse_axes, plain
from pbkv.whatif.question import About, Found, Load, Loaded, Present
from pbkv.whatif.run import GridCell, run_grid
from pbkv.whatif.setting import Setting

Stop = Callable[[], bool]
Tell = Callable[[int, Found], None]

#: Time for one forecast, s: a handful of them, or the first look with its fidelity, stay under two seconds. So many of the newest calls are
#: taken as fit it.
FORECAST_S = 0.25
#: Calls to begin with, and the fewest that say anything.
FIRST_CALLS, LEAST_CALLS = 1000, 500
#: Most calls of a quick forecast and of a grid; the memory of a grid's processes is bounded by it.
MOST_CALLS, MOST_CALLS_OF_GRID = 20_000, 50_000
#: Processes of a grid.
WORKERS = min(os.cpu_count() or 1, 4)
#: A live recording older than this is read again before it is asked about, s.
STALE_S = 60.0
#: Settings whose forecasts are kept with a recording.
MOST_KEPT = 500


@dataclass
class Held:
    """One recording. `present` None: `refused` says why nothing can be forecast from it."""

    loaded: Loaded
    digest: str
    read_at: float
    known: Fidelity | None = None
    refused: str = ""
    found: dict[Setting, Found] = field(default_factory=dict[Setting, Found])
    #: Time of the newest replay, s per call.
    pace: float = math.nan

    @property
    def about(self) -> About:
        """For whoever asks."""
        r, engine = self.loaded.recording, self.loaded.recording.engine
        loaded = self.loaded
        return About(
            r.name, loaded.calls or r.calls, loaded.span_s, loaded.ended, loaded.left_out, dict(r.knobs), engine.device_tokens,
            engine.host_tokens,
        )

    @property
    def present(self) -> Present | None:
        """Measured where it was, else replayed."""
        if self.known is None:
            return None
        replayed = {name: value for name, value in self.known.present.figures.items() if not math.isnan(value)}
        measured = {name: value for name, value in self.loaded.recording.measured.items() if name in replayed}
        return Present({**replayed, **measured}, tuple(self.known.residuals.values()))

    def learn(self, stop: Stop) -> bool:
        """Replay the recorded setting; False when stopped."""
        started = time.perf_counter()
        try:
            self.known = fidelity(self.loaded.recording, stop=stop)
        except Refused as refusal:
            self.refused = str(refusal)
            return True
        self._paced(started, 1 + (JITTERS if self.known.spread else 0))
        return self.known.present.complete

    def find(self, setting: Setting, stop: Stop) -> Found | None:
        """What `setting` would have come to; None when stopped."""
        assert self.known is not None
        started = time.perf_counter()
        try:
            key = plain(setting, self.loaded.recording)
            if key in self.found:
                return replace(self.found[key], setting=setting)
            result = forecast(self.loaded.recording, self.known, key, stop=stop)
        except UsageError as refusal:
            return Found(setting, refused=str(refusal))
        if not result.outcome.complete:
            return None
        self._paced(started)
        return self._keep(key, Found(setting, result.estimates))

    def grid(self, axes: Mapping[str, str]) -> tuple[Setting, ...]:
        """The settings of a grid. Raises UsageError."""
        settings = tuple(parse_axes(axes, self.loaded.recording))
        if not settings:
            raise UsageError("the grid has no axis; give at least one, for example gamma 0.5:1:0.1")
        return settings

    def find_each(self, settings: Sequence[Setting], tell: Tell, stop: Stop) -> None:
        """The same for several, one after another, told with their positions as they are found."""
        for place, setting in enumerate(settings):
            found = self.find(setting, stop)
            if found is None or stop():
                return
            tell(place, found)

    def find_all(self, settings: Sequence[Setting], cache: str, tell: Tell, pace: Callable[[int, float], None], stop: Stop) -> None:
        """The same for a grid, over processes; `pace` is told how many are done and the seconds left."""
        recording, place = self.loaded.recording, {setting: n for n, setting in enumerate(settings)}
        grid = run_grid(
            recording, settings, workers=WORKERS, cache=GridCache(Path(cache), recording) if cache else None, stop=stop,
            on_cell=lambda cell: tell(place[cell.setting], _found(cell)), on_pace=lambda at: pace(at.done, at.left_s),
        )
        self.known = self.known or grid.fidelity

    def _keep(self, key: Setting, found: Found) -> Found:
        if len(self.found) >= MOST_KEPT:
            del self.found[next(iter(self.found))]
        self.found[key] = found
        return found

    def _paced(self, started: float, replays: int = 1) -> None:
        self.pace = (time.perf_counter() - started) / max(self.loaded.recording.calls, 1) / replays


def _found(cell: GridCell) -> Found:
    return Found(cell.setting, cell.forecast.estimates if cell.forecast else {}, cell.error)


class Shelf:
    """The recordings kept: at most one for quick forecasts and one for grids. `clock` in s."""

    def __init__(self, load: Load, clock: Callable[[], float]) -> None:
        self._load, self._clock = load, clock
        self._held: dict[bool, tuple[float, Held]] = {}
        self._most = FIRST_CALLS

    def take(self, span_s: float, *, whole: bool, stop: Stop) -> Held | None:
        """The recording of the last `span_s`, fresh enough; None when stopped. Raises as the load function does."""
        span, held = self._held.get(whole, (span_s, None))
        fresh = held is not None and span == span_s and not (held.loaded.live and self._clock() - held.read_at > STALE_S)
        return held if fresh else self._read(span_s, whole, stop)

    def refresh(self, older_s: float, stop: Stop) -> None:
        """Read the quick recording again if it is older and either live, or so quickly replayed that twice as many calls would do."""
        span, held = self._held.get(False, (0.0, None))
        if held is None or self._clock() - held.read_at < older_s:
            return
        if held.loaded.live or (held.loaded.left_out and self._most >= 2 * held.about.calls):
            self._read(span, False, stop)

    def clear(self) -> None:
        """Give the memory back."""
        self._held.clear()

    def _read(self, span_s: float, whole: bool, stop: Stop) -> Held | None:
        held = self._learned(span_s, MOST_CALLS_OF_GRID if whole else self._most, whole, stop)
        if held is not None and not whole and self._too_slow(held):
            held = self._learned(span_s, self._most, whole, stop)
        if held is not None:
            self._held[whole] = (span_s, held)
        return held

    def _learned(self, span_s: float, most: int, whole: bool, stop: Stop) -> Held | None:
        loaded = self._load(span_s, most)
        held = Held(loaded, digest(loaded.recording), self._clock())
        _, before = self._held.get(whole, (span_s, None))
        if before is not None and before.digest == held.digest:
            before.loaded, before.read_at = loaded, held.read_at
            return before
        # A grid replays the recorded setting by itself, beside the others.
        return held if whole or held.learn(stop) else None

    def _too_slow(self, held: Held) -> bool:
        """Whether a forecast would take too long; from then on so many calls are taken as fit."""
        if math.isnan(held.pace):
            return False
        # So many calls are replayed for one that is in the figures.
        replayed = held.loaded.recording.calls / held.about.calls
        self._most = min(max(int(FORECAST_S / max(held.pace * replayed, 1e-9)), LEAST_CALLS), MOST_CALLS)
        return held.about.calls > 1.2 * self._most
