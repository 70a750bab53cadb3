"""Idle windows of the host-device link: maximal runs of pure-decode steps in which no demand copy is in flight."""

from dataclasses import dataclass

#: A run is cut after this long, so that a window is reported while it lasts, nanoseconds.
MAX_WINDOW_NS = 1_000_000_000


@dataclass(frozen=True)
class Window:
    """One window. Clock and length in nanoseconds, bytes moved in it by prefetch (h2d) and backup (d2h)."""

    start_ns: int
    length_ns: int
    h2d_bytes: int
    d2h_bytes: int


class WindowTracker:
    """Fed once per scheduler step."""

    def __init__(self) -> None:
        self._start: int | None = None
        self._h2d = self._d2h = 0

    def moved(self, h2d: int = 0, d2h: int = 0) -> None:
        """Bytes moved inside the open window."""
        self._h2d += h2d
        self._d2h += d2h

    def step(self, now_ns: int, idle: bool) -> Window | None:
        """`idle`: the step is pure decode and the link free. Returns the window that ended, if one did."""
        if idle and self._start is None:
            self._start, self._h2d, self._d2h = now_ns, 0, 0
            return None
        if self._start is None or (idle and now_ns - self._start < MAX_WINDOW_NS):
            return None
        window = Window(self._start, now_ns - self._start, self._h2d, self._d2h)
        self._start = now_ns if idle else None
        self._h2d = self._d2h = 0
        return window
