"""Ends the collector's process when nothing less would help, and starts it again.

A query that came over Quack cannot be cancelled, and one expression can take memory in a single step that no limit and no interrupt
stops. So the process is ended with status RESTART, and `supervise`, its parent, starts it again. Nothing is lost by that: what was
not committed is asked for again.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import duckdb

from collector.quack import overdue
from collector.store import Store
from pbkv.errors import PbkvError

#: Exit status that asks for a new start.
RESTART = 75
#: Environment variable that tells a process it has a supervisor.
SUPERVISED = "PBKV_SUPERVISED"
#: Resident memory of a collector that is out of bounds: DuckDB's limit, the queues, Arrow's buffers, and as much again.
MAX_RSS = 4 << 30
_LOOK_S = 0.5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
#: After this long a start counts as one that worked, seconds.
_SETTLED_S = 60.0
_PDEATHSIG = 1


class Watchdog:
    """Looks at memory and at Quack's queries until `close`."""

    def __init__(self, store: Store, max_query_s: float, max_rss: int = MAX_RSS) -> None:
        self._store, self._max_query_s, self._max_rss = store, max_query_s, max_rss
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pbkv-watchdog", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            reason = self.reason()
            if reason:
                sys.stderr.write(f"restarting: {reason}\n")
                sys.stderr.flush()
                os._exit(RESTART)

    def reason(self) -> str:
        """Why the process must end now; "" = it need not."""
        if (rss := resident_bytes()) > self._max_rss:
            return f"{rss >> 20} MiB of memory in use, more than {self._max_rss >> 20}"
        try:
            with self._store.cursor() as db:
                query = overdue(db, self._max_query_s)
        except (duckdb.Error, PbkvError):
            return ""  # the store is being reopened
        return f"a query over Quack ran for more than {self._max_query_s:g} s: {' '.join(query.split())[:200]}" if query else ""

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()


def resident_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def supervise(command: list[str]) -> int:
    """Run `command` and start it again whenever it ends with RESTART or by a signal that was not ours; returns its exit status.

    SIGINT and SIGTERM are passed on. When this process dies, so does the command.
    """
    stopping = threading.Event()
    child: list[subprocess.Popen[bytes]] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        for process in child:
            process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    pause = _FIRST_PAUSE_S
    while True:
        started = time.monotonic()
        child[:] = [subprocess.Popen(command, env={**os.environ, SUPERVISED: "1"}, preexec_fn=_die_with_parent, process_group=0)]
        code = _wait(child[0])
        if stopping.is_set() or not (code == RESTART or code < 0):
            return code if code >= 0 else 1
        sys.stderr.write(f"the collector ended with status {code}; starting it again\n")
        pause = _FIRST_PAUSE_S if time.monotonic() - started > _SETTLED_S else min(2 * pause, _LONGEST_PAUSE_S)
        stopping.wait(pause)
        if stopping.is_set():
            return 0


def _wait(process: "subprocess.Popen[bytes]") -> int:
    while True:
        try:
            return process.wait()
        except InterruptedError:
            continue


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM)
