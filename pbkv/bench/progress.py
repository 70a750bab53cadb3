"""One line on stderr: how far, how fast, how long still."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

#: Seconds between two lines where stderr is no terminal.
_QUIET_S = 30.0
_WIDTH = 30


class Progress:
    """Counts finished work. `timer` in seconds; on a terminal the line is rewritten, elsewhere printed now and then."""

    def __init__(self, total: int, what: str, out: TextIO | None = None, timer: Callable[[], float] = time.monotonic) -> None:
        self._total, self._what, self._out, self._timer = total, what, out or sys.stderr, timer
        self._done = self._known = 0
        self._start = timer()
        self._said = -1e9

    def known(self, count: int) -> None:
        """So many need no work: they do not count for the speed."""
        self._known += count

    def step(self) -> None:
        """One more is done."""
        self._done += 1
        now = self._timer()
        terminal = self._out.isatty()
        if now - self._said >= (0.2 if terminal else _QUIET_S) or self._done + self._known == self._total:
            self._said = now
            self._out.write(("\r\x1b[K" if terminal else "") + self.line(now) + ("" if terminal else "\n"))
            self._out.flush()

    def close(self) -> None:
        """The line is complete."""
        if self._out.isatty():
            self._out.write("\n")

    def line(self, now: float) -> str:
        """Bar, counts and time left."""
        at = self._done + self._known
        full = _WIDTH * at // max(self._total, 1)
        left = (now - self._start) / self._done * (self._total - at) if self._done else 0.0
        return f"{self._what} [{'#' * full}{'.' * (_WIDTH - full)}] {at}/{self._total}, {self._known} known, {_span(left)} left"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
