"""The thread that commits: batches from the pipe into the store, again and again until they are in.

A batch that cannot be written (disk full, file system gone) is kept and tried again with growing pauses. Meanwhile the pipe fills and
the sockets are not read: memory stays bounded and nothing that was taken is forgotten.
"""

import threading
import time
from collections import Counter, deque

from collector.pipe import Pipe
from collector.store import Store
from collector.stream import Item, Key, Loss, key_of
from pbkv.errors import PbkvError

_RATE_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
#: Attempts to write the last batch while stopping.
_LAST_ATTEMPTS = 3


class Ingest:
    """Commits from `pipe` to `store` until the pipe is closed and empty."""

    def __init__(self, pipe: Pipe, store: Store) -> None:
        self._pipe, self._store = pipe, store
        self.rows: Counter[str] = Counter()
        self.commits = self.failures = self.left = 0
        self.failing = ""
        self.last_error = ""
        self.stopping = threading.Event()
        #: Everything the pipe had until it was closed has been stored.
        self.complete = False
        #: Per stream: last stored message, and seconds from its sending to its commit.
        self.stored: dict[Key, tuple[int, float]] = {}
        self.commit_ms: deque[float] = deque(maxlen=4096)
        #: End (monotonic clock, seconds) and records of the last transactions.
        self._recent: deque[tuple[float, int]] = deque(maxlen=1024)
        self.thread = threading.Thread(target=self._run, name="pbkv-ingest", daemon=True)

    def _run(self) -> None:
        while items := self._pipe.take(self._store.batch_bytes, self._store.commit_s):
            if not self._persist(items):
                self.left += len(items)
                return
        self.complete = True

    def _persist(self, items: list[Item]) -> bool:
        """Commit, however often it takes; False when stopping and it still fails."""
        pause, attempts_left = _FIRST_PAUSE_S, _LAST_ATTEMPTS
        usable = True
        while not (usable and self._attempt(items)):
            attempts_left -= self.stopping.is_set()
            if attempts_left <= 0:
                return False
            if self.stopping.wait(pause):
                time.sleep(_FIRST_PAUSE_S)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            usable = self._reopen()
        return True

    def _attempt(self, items: list[Item]) -> bool:
        try:
            self._commit(items)
        except PbkvError as error:
            self._note(str(error))
            return False
        return True

    def _commit(self, items: list[Item]) -> None:
        start = time.monotonic()
        batch = self._store.commit(items)
        end = time.monotonic()
        self.commit_ms.append((end - start) * 1e3)
        self._recent.append((end, sum(batch.rows.values())))
        self.commits += 1
        self.rows.update(batch.rows)
        self.failing = ""
        now = time.time()
        for item in items:
            if not isinstance(item, Loss) and (key := key_of(item.header)) in batch.done:
                self.stored[key] = (batch.done[key], now - item.header.wall_ns / 1e9)

    def rows_per_s(self, now: float) -> float:
        """Records stored per second in the ten seconds before `now` (monotonic clock)."""
        return sum(rows for end, rows in list(self._recent) if end > now - _RATE_S) / _RATE_S

    def _reopen(self) -> bool:
        try:
            self._store.reopen()
        except PbkvError as error:
            self._note(str(error))
            return False
        return True

    def _note(self, text: str) -> None:
        self.failures += 1
        self.failing = self.last_error = text
