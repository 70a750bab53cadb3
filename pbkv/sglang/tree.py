"""Reading SGLang's tree nodes, and the leaf sets that tell the queues who is a candidate."""

import time
from typing import Any

from sglang.srt.mem_cache.unified_cache.components import ComponentType

from pbkv.eviction.queue import LazyQueue
from pbkv.record import NodeRecord
from pbkv.sglang.guard import Guard

FULL = ComponentType.FULL


def record_of(node: Any) -> NodeRecord:
    """The node's record, made on first sight. Its size is fixed until a split, which updates it."""
    record = node.__dict__.get("pbkv")
    if record is None:
        record = node.pbkv = NodeRecord(node, node.id, len(node.key), time.monotonic_ns())
    return record


def device_tokens(node: Any) -> int:
    """Tokens of the node's KV on the device."""
    value = node.component_data[FULL].value
    return 0 if value is None else len(value)


def host_tokens(node: Any) -> int:
    """Tokens of the node's KV in host memory."""
    value = node.component_data[FULL].host_value
    return 0 if value is None else len(value)


class LeafSet(set[Any]):
    """SGLang's set of evictable leaves; whoever enters or leaves it enters or leaves the queue in the same breath."""

    def __init__(self, queue: LazyQueue[NodeRecord], guard: Guard) -> None:
        super().__init__()
        self._queue, self._guard = queue, guard

    def add(self, node: Any) -> None:
        if node not in self:
            super().add(node)
            self._guard.run(self._enter, node)

    def _enter(self, node: Any) -> None:
        self._queue.add(record_of(node))

    def discard(self, node: Any) -> None:
        if node in self:
            super().discard(node)
            self._guard.run(self._leave, node)

    def _leave(self, node: Any) -> None:
        self._queue.discard(record_of(node))

    def reenter(self) -> None:
        """All of it anew, after the queue was not kept for a while."""
        for node in self:
            self._enter(node)


class NodeTree:
    """What the cache manager asks about nodes (pbkv.manager.Tree)."""

    def __init__(self, cache: Any) -> None:
        self._core = cache.tree_core

    def tier_of(self, record: NodeRecord) -> str:
        if record.node_id not in self._core._node_arena:
            return "none"  # SGLang leaves the indices of a deleted node on it
        device, host = self.tokens_of(record)
        return ("both" if host else "device") if device else ("host" if host else "none")

    def parent_of(self, record: NodeRecord) -> int:
        parent = record.node.parent  # type: ignore[attr-defined]
        return 0 if parent is None or parent is self._core.root_node else parent.id

    def tokens_of(self, record: NodeRecord) -> tuple[int, int]:
        return device_tokens(record.node), host_tokens(record.node)

    def is_device_leaf(self, record: NodeRecord) -> bool:
        return record.node in self._core.evictable_device_leaves
