"""Small stand-ins around a tree alone: a keeper that evicts least recently used first, and copies that complete when told to."""

from typing import Any

from pbkv.engine.node import DEVICE_LEAF, Node
from pbkv.engine.pools import Pool
from pbkv.engine.tiers import TwoTierTree, WritePolicy
from pbkv.engine.view import NodeView
from pbkv.eviction.queue import LazyQueue
from pbkv.knobs import KnobSet
from pbkv.manager import CacheManager
from pbkv.predictor.markov import OnlineMarkov
from pbkv.record import NodeRecord


def recency(record: NodeRecord) -> tuple[float, ...]:
    return (record.node.last_access_time,)


class LruKeeper:
    """What `CacheManager` does for a tree, for the policy lru alone; remembers the victims."""

    def __init__(self) -> None:
        self.device: LazyQueue[NodeRecord] = LazyQueue(recency, lambda r: r.node_id)
        self.host: LazyQueue[NodeRecord] = LazyQueue(recency, lambda r: r.node_id)
        self._walk: list[NodeRecord] = []

    def split(self, prefix: NodeRecord, suffix: NodeRecord) -> None:
        suffix.tokens -= prefix.tokens

    def removed(self, record: NodeRecord) -> None:
        self.device.discard(record)
        self.host.discard(record)

    def next_device_victim(self) -> NodeRecord | None:
        return self._next(self.device, self._walk)

    def end_device_walk(self) -> None:
        for record in self._walk:
            if record.node.leaf == DEVICE_LEAF:
                self.device.add(record)
        self._walk.clear()

    def next_host_victim(self) -> NodeRecord | None:
        return self._next(self.host, [])

    def _next(self, queue: LazyQueue[NodeRecord], walk: list[NodeRecord]) -> NodeRecord | None:
        record = queue.peek()
        if record is not None:
            queue.discard(record)
            walk.append(record)
        return record


class HeldCopies:
    """Copies complete at `settle`, in the order they began."""

    def __init__(self) -> None:
        self.tree: TwoTierTree
        self._backups: list[Node] = []
        self._loads: list[tuple[Node, int]] = []
        self.written_back = 0

    def back_up(self, node: Node, pages: int) -> None:
        self._backups.append(node)

    def write_back(self, node: Node, pages: int) -> None:
        self.written_back += pages

    def load(self, node: Node, pages: int, edge: int) -> None:
        self._loads.append((node, edge))

    @property
    def under_way(self) -> int:
        return len(self._backups) + len(self._loads)

    def settle(self) -> None:
        backups, loads = self._backups, self._loads
        self._backups, self._loads = [], []
        for node in backups:
            self.tree.backed_up(node)
        for node, edge in loads:
            self.tree.loaded(node, edge)


def make_manager(knobs: dict[str, Any]) -> CacheManager:
    """The real manager, for a tree of its own."""
    made = KnobSet()
    made.values.update(knobs)
    return CacheManager(NodeView(), made, OnlineMarkov(), bytes_per_token=1, timer=lambda: 0)


def make_tree(device: int, host: int = 0, page: int = 1, write_policy: WritePolicy = "write_through", keeper: object = None) -> TwoTierTree:
    """A tree of its own; sizes in tokens."""
    copies = HeldCopies()
    tree = TwoTierTree(keeper or LruKeeper(), Pool(device, page), Pool(host, page), page, write_policy, copies)
    copies.tree = tree
    return tree
