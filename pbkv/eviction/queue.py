"""The persistent lazy queue victims come from: never rebuilt for an eviction, in exactly the order of a full sort.

Invariant: every candidate has an entry whose key is at most its current key. Then the first entry that is up to date belongs to the true
minimum. A key that falls must therefore be pushed at once (`push`); a key that grows may be left, it is corrected when its
entry surfaces. Keys end in a logical access clock, so no two candidates compare equal for long.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Key = tuple[float, ...]
C = TypeVar("C")


class LazyQueue(Generic[C]):
    """Minimum first by `key(candidate)`; `ident` breaks ties and is never given to another candidate, dead ones included."""

    def __init__(self, key: Callable[[C], Key], ident: Callable[[C], int]) -> None:
        self._key, self._ident = key, ident
        self._heap: list[tuple[Key, int, C]] = []
        self._alive: dict[int, C] = {}

    def __len__(self) -> int:
        return len(self._alive)

    @property
    def members(self) -> dict[int, C]:
        """Candidates by `ident`, the same dictionary for good; taking one out is to `discard` it."""
        return self._alive

    def __contains__(self, candidate: C) -> bool:
        return self._alive.get(self._ident(candidate)) is candidate

    def add(self, candidate: C) -> None:
        """Make it a candidate (again)."""
        ident = self._ident(candidate)
        self._alive[ident] = candidate
        heapq.heappush(self._heap, (self._key(candidate), ident, candidate))
        if len(self._heap) > 64 + 4 * len(self._alive):
            self.rebuild()

    def discard(self, candidate: C) -> None:
        """It is no candidate any more; its entries die when they surface."""
        self._alive.pop(self._ident(candidate), None)

    def push(self, candidate: C) -> None:
        """Its key may have fallen. Without this call the order would be wrong; for a non-candidate it does nothing."""
        if self._alive and self._alive.get(self._ident(candidate)) is candidate:
            self._enter(candidate)

    def push_all(self, candidates: Iterable[C]) -> None:
        """`push` for each of them."""
        alive = self._alive
        if alive:
            ident, key, heap = self._ident, self._key, self._heap
            for candidate in candidates:
                number = ident(candidate)
                if alive.get(number) is candidate:
                    heapq.heappush(heap, (key(candidate), number, candidate))
            if len(heap) > 64 + 4 * len(alive):
                self.rebuild()

    def _enter(self, candidate: C) -> None:
        heapq.heappush(self._heap, (self._key(candidate), self._ident(candidate), candidate))
        if len(self._heap) > 64 + 4 * len(self._alive):
            self.rebuild()

    def rebuild(self) -> None:
        """One entry per candidate under current keys: after a change of order, and when dead entries outnumber live ones."""
        self._heap = [(self._key(c), i, c) for i, c in self._alive.items()]
        heapq.heapify(self._heap)

    def order_by(self, key: Callable[[C], Key]) -> None:
        """Another order from now on."""
        self._key = key
        self.rebuild()

    def clear(self) -> None:
        """Forget all candidates."""
        self._heap.clear()
        self._alive.clear()

    def peek(self) -> C | None:
        """The candidate with the least key, or None. Amortised O(log n)."""
        heap = self._heap
        while heap:
            key, ident, candidate = heap[0]
            if self._alive.get(ident) is not candidate:
                heapq.heappop(heap)
            elif (now := self._key(candidate)) != key:
                heapq.heapreplace(heap, (now, ident, candidate))
            else:
                return candidate
        return None

    def peek_second(self) -> C | None:
        """The candidate after `peek()`, found without disturbing the queue's invariant."""
        first = self.peek()
        if first is None:
            return None
        entry = heapq.heappop(self._heap)
        self._alive.pop(entry[1])
        second = self.peek()
        self._alive[entry[1]] = first
        heapq.heappush(self._heap, entry)
        return second
