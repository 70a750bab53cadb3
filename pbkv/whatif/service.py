"""The forecast service of a front end: questions go to a process of their own, so that neither screen nor collector waits for a replay."""

import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import IO

from pbkv.engine.settings import EngineSettings
from pbkv.errors import UsageError
from pbkv.whatif.axes import AXES
from pbkv.whatif.question import SPAN_S, Answer, Load, Question, Said, Withdrawn
from pbkv.whatif.recording import Recording
from pbkv.whatif.setting import Setting

#: Called from the service's thread with every step of an answer, the last one `done`.
Tell = Callable[[Answer], None]

#: Settings of one quick question; a grid has its own limit.
MOST_SETTINGS = 16
#: Owners that may wait at the same time.
MOST_OWNERS = 16
#: Longest window, s.
MOST_SPAN_S = 86_400.0


@dataclass
class _Asked:
    number: int
    answer: Answer
    tell: Tell


class Forecaster:
    """Answers of one forecast process, which is started by the first question and again after it has died. Any thread.

    `load` must go through pickle: a function or instance of an importable module. `cache`: folder for cells of grids, "" = none is kept.
    """

    def __init__(self, load: Load, *, cache: str = "") -> None:
        self._load, self._cache = load, cache
        self._lock = threading.Lock()
        self._asked: dict[str, _Asked] = {}
        self._number = 0
        self._line: Connection[object, object] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def ask(self, owner: str, settings: Sequence[Setting], tell: Tell, *, span_s: float = SPAN_S) -> None:
        """Ask on behalf of `owner`, whose older question is cancelled by it. No settings: the present alone.

        Raises UsageError for too much at once.
        """
        if len(settings) > MOST_SETTINGS:
            raise UsageError(f"settings: {len(settings)} at once; expected up to {MOST_SETTINGS}")
        self._put(Question(owner, 0, tuple(settings), None, span_s), tell)

    def grid(self, owner: str, axes: Mapping[str, str], tell: Tell, *, span_s: float = SPAN_S) -> None:
        """Ask for a grid with these axes (pbkv.whatif.axes.AXES). Raises UsageError for a bad one."""
        check_axes(axes)
        self._put(Question(owner, 0, (), dict(axes), span_s), tell)

    def _put(self, question: Question, tell: Tell) -> None:
        owner = question.owner
        if not 1.0 <= question.span_s <= MOST_SPAN_S:
            raise UsageError(f"window of {question.span_s:g} s: expected 1 to {MOST_SPAN_S:g} seconds")
        with self._lock:
            if owner not in self._asked and len(self._asked) >= MOST_OWNERS:
                raise UsageError(f"{MOST_OWNERS} others are waiting for forecasts; try again in a moment")
            self._number += 1
            self._asked[owner] = _Asked(self._number, Answer(question.settings), tell)
            self._send(question._replace(number=self._number))

    def withdraw(self, owner: str) -> None:
        """Cancel the question of `owner`, if there is one; nothing more is told of it."""
        with self._lock:
            if self._asked.pop(owner, None) is not None and self._line is not None:
                self._send(Withdrawn(owner))

    def ahead(self, owner: str) -> int:
        """How many other owners asked before `owner` and have no answer yet."""
        with self._lock:
            mine = self._asked.get(owner)
            return 0 if mine is None else sum(asked.number < mine.number for asked in self._asked.values())

    def close(self) -> None:
        """End the process; questions stay unanswered."""
        with self._lock:
            self._closed = True
            self._asked.clear()
            line, self._line = self._line, None
        if line is not None:
            _hang_up(line)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    # ---- the process -------------------------------------------------------------------------------------------------------

    def _send(self, message: object) -> None:
        """The lock is held. A process that has died is replaced, and asked everything that is still unanswered."""
        if self._closed:
            raise UsageError("the forecast service is closed")
        if self._line is None:
            self._start()
        assert self._line is not None
        with suppress(ConnectionError):  # it died this moment: the thread that reads tells everybody who waits
            self._line.send(message)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        said = tempfile.TemporaryFile()  # noqa: SIM115  (until the process has ended)
        # Not multiprocessing: it would want the standard streams, which belong to the screen, and import the front end again.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pbkv.whatif.worker", str(theirs.fileno())], pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
        )
        theirs.close()
        self._line = Connection(ours.detach())
        self._line.send((self._load, self._cache))
        self._thread = threading.Thread(target=self._listen, args=(self._line, self._process, said), name="pbkv-forecast", daemon=True)
        self._thread.start()

    def _listen(self, line: "Connection[object, object]", process: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._heard(line.recv())
        process.wait()
        with said:
            why = _last_line(said)
        with self._lock:
            if self._line is not line:
                return
            self._line = None
            left, self._asked = list(self._asked.values()), {}
        line.close()
        for asked in left:
            asked.tell(replace(asked.answer, error=f"the forecast process ended before it had answered{why}; ask again", done=True))

    def _heard(self, message: object) -> None:
        if not isinstance(message, Said):
            return
        with self._lock:
            asked = self._asked.get(message.owner)
            if asked is None or asked.number != message.number:
                return  # of a question that was replaced while this was on its way
            asked.answer = asked.answer.said(message)
            if asked.answer.done:
                del self._asked[message.owner]
        asked.tell(asked.answer)


def check_axes(axes: Mapping[str, str]) -> None:
    """Whether a grid of these axes can be, as far as that can be told without the recording. Raises UsageError."""
    if not axes:
        raise UsageError("the grid has no axis; give at least one, for example gamma 0.5:1:0.1")
    some = Recording("", (), EngineSettings(host_tokens=1 << 20))
    for name, text in axes.items():
        if name not in AXES:
            raise UsageError(f"axis {name!r}: no such axis; expected one of {', '.join(AXES)}")
        AXES[name].values(text, some)


def _last_line(said: IO[bytes]) -> str:
    """What a process said last on stderr, in brackets."""
    said.seek(max(0, said.seek(0, 2) - 1000))
    lines = said.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f" ({last[:200]})" if last else ""


def _hang_up(line: "Connection[object, object]") -> None:
    """Close it so that whoever waits on either side is woken: closing a descriptor alone wakes no reader of this process."""
    with suppress(OSError), socket.socket(fileno=line.fileno()) as ending:
        ending.shutdown(socket.SHUT_RDWR)
        ending.detach()
    line.close()
