"""What the cache manager and its prefetch planner ask of the engine: where a node is, and what a load would take."""

from typing import cast

from pbkv.engine.node import DEVICE_LEAF, Node
from pbkv.engine.scheduler import Scheduler
from pbkv.engine.tiers import LOAD_BACK_TOKENS, TwoTierTree
from pbkv.record import NodeRecord

#: Decode tokens a running call is given room for before prefetch may take the rest.
GROWTH_TOKENS = 64


class NodeView:
    """pbkv.manager.Tree on the nodes of the embedded tree."""

    def tier_of(self, record: NodeRecord) -> str:
        node = cast(Node, record.node)
        return ("both" if node.on_host else "device") if node.on_device else ("host" if node.on_host else "none")

    def parent_of(self, record: NodeRecord) -> int:
        return cast(Node, record.node).parent.id

    def tokens_of(self, record: NodeRecord) -> tuple[int, int]:
        node = cast(Node, record.node)
        return record.tokens * node.on_device, record.tokens * node.on_host

    def is_device_leaf(self, record: NodeRecord) -> bool:
        return record.node.leaf == DEVICE_LEAF  # type: ignore[attr-defined]


class LoadRoom:
    """pbkv.prefetch.planner.Room: prefetch loads like a call would, only without one."""

    def __init__(self, tree: TwoTierTree, scheduler: Scheduler) -> None:
        self._tree, self._scheduler = tree, scheduler
        self._headroom = 0

    def open(self) -> None:
        """A step begins in which loads are decided."""
        decoding, page = self._scheduler.decoding, self._tree.page_size
        self._headroom = sum(min(c.announced - decoding.generated(c), GROWTH_TOKENS) + page for c in decoding.calls)

    def load_tokens(self, record: NodeRecord) -> int:
        """Tokens of the node and its evicted ancestors; 0 when it is resident, gone, or in flight."""
        node, pages = cast(Node, record.node), 0
        if not record.live or node.loading:
            return 0
        while not node.on_device:
            if not node.on_host:
                return 0
            pages += len(node.key)
            node = node.parent
        tokens = pages * self._tree.page_size
        return tokens if tokens >= LOAD_BACK_TOKENS else 0

    def free_tokens(self) -> int:
        """Unallocated device tokens less the headroom of running calls."""
        return self._tree.device.free * self._tree.page_size - self._headroom

    def evict(self, tokens: int) -> int:
        """Evict what the manager admits."""
        page = self._tree.page_size
        return self._tree.evict(-(-tokens // page)) * page

    def load(self, record: NodeRecord) -> bool:
        """Put the load on the link; the path is locked until it is complete. Making room for it may have taken it from the host."""
        return self.load_tokens(record) > 0 and self._tree.load_back(cast(Node, record.node)) > 0
