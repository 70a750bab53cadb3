"""Forked processes that work on numbered tasks: what the parent has in memory they share, a worker that dies takes one task with it."""

import contextlib
import gc
import mmap
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from pbkv.bench.pool import end_with_parent

#: `(task, progress, stop)` -> anything that can be pickled. `progress` takes a count, `stop` says whether to give up.
Work = Callable[[int, Callable[[int], None], Callable[[], bool]], Any]
_STOP = 0


class Done(NamedTuple):
    """What became of a task: `value`, or the `error` it ended with."""

    task: int
    value: Any
    error: Exception | None = None


class Lost(Exception):
    """The worker died."""


class _Worker:
    """A process, our end of its pipe, and its slot for progress."""

    def __init__(self, slot: int, work: Work, shared: "memoryview[int]", inherited: Iterable[Connection]) -> None:
        context = multiprocessing.get_context("fork")
        self.slot, self.task, self._shared = slot, -1, shared
        self.pipe, theirs = context.Pipe()
        foreign = [*inherited, self.pipe]
        self.process = context.Process(target=_serve, args=(theirs, work, shared, slot, foreign), daemon=True, name=f"whatif-{slot}")
        self.process.start()
        theirs.close()

    def give(self, task: int) -> None:
        self.task = task
        self._shared[self.slot] = 0
        with contextlib.suppress(OSError):  # it died idle: `take` says so
            self.pipe.send(task)

    def take(self) -> Done:
        """The result that is ready; `Lost` as its error when the process is gone."""
        task, self.task = self.task, -1
        try:
            value, error = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            error = Lost(f"its process ended with code {self.process.exitcode}; was there enough memory?")
            return Done(task, None, error)
        return Done(task, value, error)

    def close(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()
        self.process.close()


def work_through(
    tasks: Iterable[int], work: Work, count: int, *, stop: Callable[[], bool] | None = None,
    tick: Callable[[list[int]], None] | None = None, every_s: float = 0.1,
) -> Iterator[Done]:
    """Results of `tasks` as they come, from `count` processes. `tick` is told the progress of the tasks under way every `every_s` seconds.

    After `stop()` no task is begun, and those under way are asked to give up: what they return is still handed out.
    """
    shared = memoryview(mmap.mmap(-1, 8 * (count + 1))).cast("q")
    rest = iter(tasks)
    workers: list[_Worker] = []
    try:
        for task in rest:
            worker = _Worker(len(workers) + 1, work, shared, [w.pipe for w in workers])
            workers.append(worker)
            worker.give(task)
            if len(workers) == count:
                break
        busy = list(workers)
        while busy:
            ready = wait([w.pipe for w in busy], every_s)
            if stop is not None and stop():
                shared[_STOP] = 1
            for worker in [w for w in busy if w.pipe in ready]:
                yield worker.take()
                task = next(rest, None) if not shared[_STOP] else None
                if not worker.process.is_alive() and task is not None:
                    workers.remove(worker)
                    worker.close()
                    busy.remove(worker)
                    worker = _Worker(worker.slot, work, shared, [w.pipe for w in workers])
                    workers.append(worker)
                    busy.append(worker)
                if task is None:
                    busy.remove(worker)
                else:
                    worker.give(task)
            if tick is not None:
                tick([shared[w.slot] for w in busy])
    finally:
        for worker in workers:
            worker.close()


def _serve(pipe: Connection, work: Work, shared: "memoryview[int]", slot: int, foreign: Iterable[Connection]) -> None:
    """A worker's life. The terminal's interrupt is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in foreign:
        other.close()
    end_with_parent()
    gc.freeze()  # the collector never visits, and so never copies, what is shared with the parent

    def progress(count: int) -> None:
        shared[slot] = count

    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            answer = (work(task, progress, lambda: bool(shared[_STOP])), None)
        except Exception as error:
            answer = (None, error)
        pipe.send(answer)
        del answer
        gc.collect()
