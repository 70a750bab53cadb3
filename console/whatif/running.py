"""Runs a grid in front of somebody: a bar with the time left on stderr, and Ctrl-C that leaves what is finished."""

import math
import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from pbkv.whatif.curves import BOUND, curves
from pbkv.whatif.pool import work_through
from pbkv.whatif.recording import Recording
from pbkv.whatif.run import Pace

#: Seconds between two lines where stderr is no terminal.
_QUIET_S = 30.0
#: Pool sizes that the bound is drawn at; of more, some in between.
_BOUND_SIZES = 12


class Interrupt:
    """Ctrl-C once: no more cells are begun. Twice: as everywhere."""

    def __init__(self) -> None:
        self.pressed = False

    def __call__(self) -> bool:
        return self.pressed

    @contextmanager
    def heard(self) -> Generator["Interrupt"]:
        """While in it."""
        before = signal.signal(signal.SIGINT, self._press)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)

    def _press(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


def left(seconds: float) -> str:
    """Time left, for people."""
    if math.isnan(seconds):
        return ""
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes} min {rest:02d} s left" if minutes else f"{rest} s left"


@contextmanager
def progress(total: int) -> Generator[Callable[[Pace], None]]:
    """A bar on a terminal; elsewhere a line now and then."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[left]}")
    # Drawn when told: a thread that draws by itself would be copied into the processes that are forked meanwhile.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("replaying" if total else "replaying the recorded setting", total=max(total, 1), left="")

        def show(pace: Pace) -> None:
            bar.update(task, completed=pace.done, left=left(pace.left_s), refresh=True)

        yield show


def _lines(clock: Callable[[], float] = time.monotonic) -> Callable[[Pace], None]:
    said = clock()

    def show(pace: Pace) -> None:
        nonlocal said
        if clock() - said >= _QUIET_S:
            said = clock()
            print(f"replaying: {pace.done}/{pace.total} settings, {left(pace.left_s)}", file=sys.stderr, flush=True)

    return show


def bound_curve(recording: Recording, sizes: Sequence[int], workers: int, stop: Callable[[], bool]) -> list[tuple[int, float]]:
    """Hit rates that no order of eviction can better (pbkv.whatif.curves), by device tokens; what is left out was stopped."""
    sizes = sorted(set(sizes))
    chosen = sizes if len(sizes) <= _BOUND_SIZES else [sizes[n * (len(sizes) - 1) // (_BOUND_SIZES - 1)] for n in range(_BOUND_SIZES)]

    def work(task: int, progress: Callable[[int], None], asked: Callable[[], bool]) -> list[float]:
        return [point.hit for point in curves(recording, [chosen[task]], (), bound=True, stop=asked) if point.curve == BOUND]

    done = work_through(range(len(chosen)), work, min(workers, len(chosen)), stop=stop)
    return sorted((chosen[each.task], each.value[0]) for each in done if each.value)
