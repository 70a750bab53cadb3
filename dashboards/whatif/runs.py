"""Grids that pages have asked for: one per page, cancelled when its page has left."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pbkv.errors import UsageError
from pbkv.whatif.asked import Asked
from pbkv.whatif.front import WhatIf
from pbkv.whatif.question import Answer
from pbkv.whatif.results import Result, result_of

#: A page that has not been heard of for so long has left, s. A reload, or a network that is away for a moment, is shorter.
GRACE_S = 20.0
#: Pages whose last grid is remembered.
MOST_PAGES = 64


@dataclass(frozen=True)
class Run:
    """A page's grid. `n` grows with every change; `id` is the name under which the result is kept, "" until then."""

    asked: Asked
    answer: Answer = field(default_factory=Answer)
    n: int = 0
    id: str = ""
    error: str = ""
    stopped: bool = False

    @property
    def running(self) -> bool:
        return not self.answer.done


class Runs:
    """Any thread. `clock` in s."""

    def __init__(self, desk: WhatIf, clock: Callable[[], float] = time.monotonic) -> None:
        self._desk, self._clock = desk, clock
        self._lock = threading.RLock()
        self._runs: dict[str, Run] = {}
        self._seen: dict[str, float] = {}

    def start(self, page: str, asked: Asked) -> None:
        """Run a grid for a page in place of the one before. Raises UsageError."""
        with self._lock:
            if page not in self._runs and len(self._runs) >= MOST_PAGES:
                self._forget()
            before = self._runs.get(page)
            self._seen[page] = self._clock()
            n = before.n + 1 if before else 1
            self._desk.grids.grid(page, asked.axes, lambda answer: self._tell(page, asked, answer), span_s=asked.span_s)
            self._runs[page] = Run(asked, n=n)

    def stop(self, page: str) -> None:
        """Give up a page's grid; what was found is kept."""
        self._desk.grids.withdraw(page)
        with self._lock:
            run = self._runs.get(page)
            if run is not None and run.running:
                self._end(page, replace(run, answer=replace(run.answer, done=True), stopped=True))

    def get(self, page: str) -> Run | None:
        """A page's newest grid."""
        with self._lock:
            return self._runs.get(page)

    def result(self, run: Run) -> Result | None:
        """What there is of it; None before it has begun."""
        if run.answer.about is None:
            return None
        return result_of(run.answer, self._desk.source, run.asked.axes, under=run.asked.under, best=run.asked.best)

    def seen(self, page: str) -> None:
        """The page is there. Pages that are not any more lose their grids."""
        with self._lock:
            self._seen[page] = self._clock()
        self.sweep()

    def live(self, page: str) -> dict[str, Any] | None:
        """How far a page's grid is, for the page's store; None = it has asked for none."""
        run = self.get(page)
        if run is None:
            return None
        done, total = len(run.answer.found), max(len(run.answer.settings), 1)
        said = note(run, self._desk.grids.ahead(page))
        return {
            "n": run.n, "running": run.running, "id": run.id, "note": said, "bad": bool(run.error), "share": round(100 * done / total, 1),
        }

    def sweep(self) -> None:
        """Cancel the grids of pages that have left."""
        limit = self._clock() - GRACE_S
        with self._lock:
            gone = [page for page, at in self._seen.items() if at < limit]
            for page in gone:
                del self._seen[page]
                run = self._runs.pop(page, None)
                if run is not None and run.running:
                    self._desk.grids.withdraw(page)

    def _tell(self, page: str, asked: Asked, answer: Answer) -> None:
        self.sweep()
        with self._lock:
            run = self._runs.get(page)
            if run is None or run.asked is not asked or run.stopped:
                return
            run = replace(run, answer=answer, n=run.n + 1)
            if answer.done:
                self._end(page, run)
            else:
                self._runs[page] = run

    def _end(self, page: str, run: Run) -> None:
        """The last word: what was found is kept under an id."""
        result, id_, error = self.result(run), "", run.answer.error
        if result is not None and result.cells:
            try:
                id_ = self._desk.results.keep(result)
            except UsageError as refusal:
                error = str(refusal)
        elif not error:
            error = "stopped before the first setting was answered"
        self._runs[page] = replace(run, n=run.n + 1, id=id_, error=error)

    def _forget(self) -> None:
        """The grid of the page that was heard of longest ago; one that runs stays."""
        done = [page for page, run in self._runs.items() if not run.running]
        if not done:
            raise UsageError(f"{MOST_PAGES} pages run grids; try again in a moment")
        oldest = min(done, key=lambda page: self._seen.get(page, 0.0))
        del self._runs[oldest]


def note(run: Run, ahead: int) -> str:
    """The sentence beside the buttons. `ahead`: grids of other pages that run before."""
    answer, done, total = run.answer, len(run.answer.found), len(run.answer.settings)
    if not run.running:
        if not run.id:
            return run.error
        how = "stopped" if run.stopped else f"in {answer.took_s:.1f} s"
        return f"{done:,} of {total:,} settings {how}, kept as {run.id}. {run.error}".strip()
    if answer.about is None:
        return f"Waiting for {ahead} other {'grid' if ahead == 1 else 'grids'} …" if ahead else "Reading the log …"
    left = f", {answer.left_s:.0f} s left" if not math.isnan(answer.left_s) else ""
    return f"{done:,} of {total:,} settings{left}"


def read_form(ids: list[Mapping[str, str]], values: list[object]) -> dict[str, str]:
    """Field -> text of the page's form; anything may stand in it."""
    return {i["field"]: value for i, value in zip(ids, values, strict=True) if isinstance(value, str)}
