"""One thread reads the source for all open pages; pages take the newest snapshot of the window they show."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from collector.reader import Reader
from collector.views.models import Overview
from pbkv.errors import PbkvError, Unreachable

Load = Callable[[Reader, float], Overview]
#: A window nobody asked for this long is no longer read, seconds.
FORGET_S = 15.0


@dataclass(frozen=True)
class Snapshot:
    """The last overview of a window that could be read. `error` says why there is no newer one, `failing_s` for how long.

    `n` grows with every change, so that a page can tell whether it has shown this one.
    """

    n: int
    overview: Overview | None
    error: str | None = None
    failing_since: float | None = None
    unreachable: bool = False

    @property
    def failing_s(self) -> float:
        return 0.0 if self.failing_since is None else time.monotonic() - self.failing_since


class Feed:
    """Reads the windows that pages want, once per `interval_s`. The reader lives in the thread, and is reopened after a failure."""

    def __init__(self, open_source: Callable[[], Reader], load: Load, *, interval_s: float = 1.0) -> None:
        self._open, self._load, self._interval = open_source, load, interval_s
        self._lock = threading.Condition()
        self._wanted: dict[float, float] = {}
        self._latest: dict[float, Snapshot] = {}
        self._count = 0
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pbkv-web-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; it closes its reader."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def want(self, window_s: float) -> Snapshot | None:
        """Keep `window_s` being read and return its newest snapshot; None until it has been read once."""
        with self._lock:
            new = window_s not in self._wanted
            self._wanted[window_s] = time.monotonic()
            latest = self._latest.get(window_s)
        if new:
            self._wake.set()
        return latest

    def read_now(self, window_s: float, timeout_s: float = 8.0) -> Snapshot | None:
        """The newest snapshot of a window, waiting for the first one; None when there is none in time."""
        if (latest := self.want(window_s)) is not None:
            return latest
        with self._lock:
            self._lock.wait_for(lambda: window_s in self._latest, timeout_s)
            return self._latest.get(window_s)

    def any(self) -> Snapshot | None:
        """The newest snapshot of any window: for what does not depend on one, like the server's address."""
        with self._lock:
            return max(self._latest.values(), key=lambda s: s.n, default=None)

    @property
    def idle(self) -> bool:
        """Whether no page is looking."""
        with self._lock:
            return not self._wanted

    def _windows(self) -> list[float]:
        limit = time.monotonic() - FORGET_S
        with self._lock:
            self._wanted = {w: t for w, t in self._wanted.items() if t >= limit}
            # A forgotten window is dropped whole: a page that comes back to it must never see an old snapshot as new.
            self._latest = {w: s for w, s in self._latest.items() if w in self._wanted}
            return list(self._wanted)

    def _run(self) -> None:
        reader: Reader | None = None
        while not self._stop.is_set():
            windows = self._windows()
            if windows:
                reader = self._round(reader, windows)
            self._wake.wait(self._interval)
            self._wake.clear()
        if reader is not None:
            reader.close()

    def _round(self, reader: Reader | None, windows: list[float]) -> Reader | None:
        try:
            reader = reader or self._open()
            for window in windows:
                if reader.live or self._stale(window):
                    self._store(window, self._load(reader, window))
        except PbkvError as error:
            self._fail(windows, str(error), unreachable=isinstance(error, Unreachable))
        except Exception as error:  # a page must keep its data and say what is wrong, whatever broke
            self._fail(windows, f"{type(error).__name__}: {error}")
            if reader is not None:
                reader.close()
            reader = None
        return reader

    def _stale(self, window: float) -> bool:
        # A recording does not change: one read per window is enough.
        latest = self._latest.get(window)
        return latest is None or latest.overview is None or latest.error is not None

    def _store(self, window: float, overview: Overview) -> None:
        with self._lock:
            self._count += 1
            self._latest[window] = Snapshot(self._count, overview)
            self._lock.notify_all()

    def _fail(self, windows: list[float], error: str, *, unreachable: bool = False) -> None:
        with self._lock:
            self._count += 1
            for window in windows:
                last = self._latest.get(window) or Snapshot(0, None)
                since = last.failing_since if last.failing_since is not None else time.monotonic()
                self._latest[window] = replace(last, n=self._count, error=error, failing_since=since, unreachable=unreachable)
            self._lock.notify_all()
