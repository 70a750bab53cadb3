"""Places for queries that run at the same time, shared fairly: a free place goes to the client that has the fewest."""

import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager


class Places:
    """`count` places. Any thread."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._running: Counter[str] = Counter()
        self._waiting: list[tuple[str, threading.Event]] = []
        self._lock = threading.Lock()

    @contextmanager
    def place(self, client: str, timeout_s: float) -> Generator[bool]:
        """A place for `client` while the context lasts; False when none came free within `timeout_s`."""
        got = self._take(client, timeout_s)
        try:
            yield got
        finally:
            if got:
                self._give_back(client)

    def _take(self, client: str, timeout_s: float) -> bool:
        with self._lock:
            if self._free and not self._waiting:
                self._grant(client)
                return True
            waiter = (client, threading.Event())
            self._waiting.append(waiter)
        waiter[1].wait(max(0.0, timeout_s))
        with self._lock:
            if waiter[1].is_set():
                return True
            self._waiting.remove(waiter)
            return False

    def _grant(self, client: str) -> None:
        self._free -= 1
        self._running[client] += 1

    def _give_back(self, client: str) -> None:
        with self._lock:
            self._free += 1
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]
            if self._waiting:
                # min keeps the first of equals: among clients with equally many places the one that waits longest.
                chosen = min(self._waiting, key=lambda waiter: self._running[waiter[0]])
                self._waiting.remove(chosen)
                self._grant(chosen[0])
                chosen[1].set()

    @property
    def waiting(self) -> int:
        """Queries that wait for a place."""
        return len(self._waiting)


