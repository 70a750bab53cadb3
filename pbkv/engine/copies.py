"""Copies between the tiers in virtual time: each completes when the link says so and is acknowledged at the next step boundary."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pbkv.engine.link import Link
from pbkv.engine.node import Node

if TYPE_CHECKING:
    from pbkv.engine.tiers import TwoTierTree


class Clock:
    """Engine time in seconds."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0


class LinkCopies:
    """Puts the tree's copies on the link. First in, first out per direction, so the oldest entry completes first."""

    tree: "TwoTierTree"

    def __init__(self, link: Link, clock: Clock, bytes_per_page: int) -> None:
        self.link, self._clock, self.bytes_per_page = link, clock, bytes_per_page
        self._backups: deque[tuple[float, Node]] = deque()
        self._loads: deque[tuple[float, Node, int]] = deque()
        self.backup_bytes = self.load_bytes = 0
        self.waited_until = 0.0

    def back_up(self, node: Node, pages: int) -> None:
        size = pages * self.bytes_per_page
        self.backup_bytes += size
        self._backups.append((self.link.to_host(self._clock.now, size), node))

    def write_back(self, node: Node, pages: int) -> None:
        size = pages * self.bytes_per_page
        self.backup_bytes += size
        self.waited_until = max(self.waited_until, self.link.to_host(self._clock.now, size))

    def load(self, node: Node, pages: int, edge: int) -> None:
        size = pages * self.bytes_per_page
        self.load_bytes += size
        self._loads.append((self.link.to_device(self._clock.now, size), node, edge))

    def reap(self) -> bool:
        """Acknowledge what is complete; True when there was something."""
        now, backups, loads = self._clock.now, self._backups, self._loads
        reaped = False
        while backups and backups[0][0] <= now:
            self.tree.backed_up(backups.popleft()[1])
            reaped = True
        while loads and loads[0][0] <= now:
            _, node, edge = loads.popleft()
            self.tree.loaded(node, edge)
            reaped = True
        return reaped

    @property
    def next_done(self) -> float | None:
        """When the next copy completes; None = none is in flight."""
        return min((queue[0][0] for queue in (self._backups, self._loads) if queue), default=None)

    @property
    def loading(self) -> set[int]:
        """Node ids that loads in flight are anchored on."""
        return {node.id for _, node, _ in self._loads}

    def only_prefetch(self, flying: Callable[[int], bool]) -> bool:
        """No copy is in flight but loads that `flying` knows as prefetches."""
        return not self._backups and all(flying(node.id) for _, node, _ in self._loads)

    def drop(self) -> None:
        """The tree is gone, with all copies."""
        self._backups.clear()
        self._loads.clear()
