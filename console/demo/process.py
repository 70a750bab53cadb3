"""Processes the demo starts: each in a group of its own with its output in a log file, and none left behind."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pbkv.errors import PbkvError, UsageError

#: Signals that end the demo.
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_LIBC: ctypes.CDLL | None = ctypes.CDLL(None) if sys.platform == "linux" else None
#: Longest wait for killed processes to be gone, s.
_SWEEP_S = 5.0
#: Lines of a log that are shown when its process died.
LOG_LINES = 12


@contextmanager
def uninterrupted() -> Generator[None]:
    """Ctrl-C and SIGTERM wait until the block is through, so that no process is started or stopped half-way."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _before_exec() -> None:
    # Between fork and exec: the child must not inherit the blocked signals, and when the demo itself is killed it is told to end.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """A running process. `grace_s`: how long it may take to end by itself after SIGTERM."""

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, grace_s: float = 5.0
    ) -> None:
        self.name = name
        self.log = log
        self._grace_s = grace_s
        self._swept = False
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env, start_new_session=True,
                preexec_fn=_before_exec,
            )

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative = ended by that signal."""
        code = self._process.poll()
        if code is not None and not self._swept:
            self._sweep()
        return code

    def check(self) -> None:
        """Raise when it has ended: UsageError if it said so itself with exit 2, else PbkvError with the end of its log."""
        code = self.exit_code
        if code is None:
            return
        if code == 2:
            raise UsageError(f"{self.name}: {self.log_tail(1)}")
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit {code}"
        raise PbkvError(f"{self.name} {how}; the end of {self.log}:\n{self.log_tail(LOG_LINES)}")

    def log_tail(self, lines: int) -> str:
        """The last non-empty lines of its output."""
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in text if line.strip()][-lines:])

    def stop(self) -> None:
        """End it and everything it started; returns when the whole group is gone."""
        if self.exit_code is None:
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(self._grace_s)
            self._sweep()
            self._process.wait()

    def _sweep(self) -> None:
        # Once, at the leader's end: later the group's number might belong to somebody else.
        self._swept = True
        deadline = time.monotonic() + _SWEEP_S
        while self._signal(signal.SIGKILL) and time.monotonic() < deadline:
            self._process.poll()
            time.sleep(0.02)

    def _signal(self, number: signal.Signals) -> bool:
        """Whether the group still had a process to take it."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        return True
