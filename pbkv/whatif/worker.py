"""The forecast process: keeps a recording at hand and answers questions about it, one at a time, the newest of each owner.

It is started by pbkv.whatif.service with the number of an inherited socket, and ends when the other side of it is closed.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue

from pbkv.errors import PbkvError
from pbkv.whatif.held import Shelf
from pbkv.whatif.question import Began, Cell, Ended, Found, Load, Pace, Present, Question, Said, Withdrawn

#: A live recording that was asked about lately is read again in idle time when it is this old, s.
REFRESH_S = 20.0
#: After so long without a question nothing is read ahead, and recordings are given back, s.
FORGET_S = 120.0
#: Behind the screens and the collector where processors are short.
NICE = 5


class Worker:
    """Serves one line. `clock` in s."""

    def __init__(
        self, line: "Connection[object, object]", load: Load, cache: str = "", clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._line, self._cache, self._clock = line, cache, clock
        self._shelf = Shelf(load, clock)
        self._inbox: SimpleQueue[object] = SimpleQueue()
        self._pending: dict[str, Question] = {}
        self._running: Question | None = None
        self._over = False
        self._asked = clock()

    def serve(self) -> None:
        """Answer until the other side hangs up."""
        # Read by a thread, so that whoever asks never waits until a replay or a query looks up.
        threading.Thread(target=self._listen, name="line", daemon=True).start()
        while not self._over:
            if not self._pending:
                self._idle()
            if self._pending:
                self._run(self._pending.pop(next(iter(self._pending))))

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._inbox.put(self._line.recv())
        self._inbox.put(None)

    def _run(self, question: Question) -> None:
        self._running, started = question, self._clock()
        present = None
        try:
            error, present = self._answer(question)
        except PbkvError as refusal:
            error = str(refusal)
        except Exception as fault:  # whatever it is, the next question is answered
            error = f"the forecast failed: {type(fault).__name__}: {fault}"
        if not self._stop():
            self._tell(Ended(question.owner, question.number, error, self._clock() - started, present))
        self._running, self._asked = None, self._clock()

    def _tell(self, message: Said) -> None:
        with suppress(OSError):  # nobody is there any more: the inbox says so next
            self._line.send(message)

    def _answer(self, question: Question) -> tuple[str, Present | None]:
        """Everything but the last word, which is returned. What is found after the question was withdrawn is not told."""
        owner, number, settings, axes, span_s = question
        held = self._shelf.take(span_s, whole=axes is not None, stop=self._stop)
        if held is None or self._stop():
            return "", None
        settings = settings if axes is None else held.grid(axes)
        self._tell(Began(owner, number, settings, held.about, held.present))
        if held.refused:
            return held.refused, None

        def tell(place: int, found: Found) -> None:
            self._tell(Cell(owner, number, place, found))

        if axes is None:
            held.find_each(settings, tell, self._stop)
        else:
            held.find_all(settings, self._cache, tell, lambda done, left_s: self._tell(Pace(owner, number, done, left_s)), self._stop)
        return "", held.present

    def _idle(self) -> None:
        """Wait for something to take in; what may be asked about next is kept fresh meanwhile."""
        try:
            self._sort(self._inbox.get(timeout=REFRESH_S))
        except Empty:
            if self._clock() - self._asked > FORGET_S:
                self._shelf.clear()
                return
            with suppress(PbkvError):  # the next question says what is wrong
                self._shelf.refresh(REFRESH_S, lambda: not self._inbox.empty())

    def _stop(self) -> bool:
        """Whether what is running is wanted no more. Asked often, so that a newer question never waits long."""
        while not self._inbox.empty():
            self._sort(self._inbox.get())
        return self._running is None

    def _sort(self, message: object) -> None:
        if isinstance(message, Question):
            self._pending[message.owner] = message
        elif isinstance(message, Withdrawn):
            self._pending.pop(message.owner, None)
        else:
            self._over, self._running = True, None
            self._pending.clear()
            return
        if self._running is not None and message.owner == self._running.owner:
            self._running = None


def main(handle: int) -> None:
    """Serve the inherited socket `handle`. The first message is the load function and the folder for cells of grids."""
    # Ctrl-C in the terminal is the front end's: it closes the socket when it leaves.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    with Connection(handle) as line:
        load, cache = line.recv()
        Worker(line, load, cache).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
