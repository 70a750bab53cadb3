"""A node of the radix tree, and who must be told when one becomes or stops being a candidate for eviction."""

from typing import Protocol

from pbkv.record import NodeRecord

#: Values of `Node.leaf`: a node is a candidate of at most one tier.
NO_LEAF, DEVICE_LEAF, HOST_LEAF = 0, 1, 2


class Node:
    """Whole pages with one history: resident on the device, on the host, or on both, always as a whole.

    `key` holds the content ids of its pages; `children` are found by the first page of theirs. `lock_ref` counts running calls and copies
    on the path through it, `host_lock` copies that read its host pages.
    """

    __slots__ = (
        "id", "key", "parent", "children", "on_device", "on_host", "device_children", "lock_ref", "host_lock", "host_edge",
        "last_access_time", "hit_count", "leaf", "loading", "record",
    )

    parent: "Node"
    record: NodeRecord

    def __init__(self, number: int, key: tuple[int, ...], clock: float) -> None:
        self.id = number
        self.key = key
        self.children: dict[int, Node] = {}
        self.on_device = self.on_host = False
        self.device_children = 0
        self.lock_ref = 0
        self.host_lock = 0
        self.host_edge = 0  # names the upper end of a host lock: a split moves it to the new prefix, so that unlocking covers both parts
        self.last_access_time = clock
        self.hit_count = 0
        self.leaf = NO_LEAF
        self.loading = 0  # id of the node whose load back reads this node's host pages; 0 = none


class Candidates(Protocol):
    """The queue of one tier's candidates."""

    def add(self, candidate: NodeRecord) -> None: ...

    def discard(self, candidate: NodeRecord) -> None: ...


class Keeper(Protocol):
    """What a tree needs of the cache manager: who is evicted next, and to be listened to."""

    @property
    def device(self) -> Candidates: ...

    @property
    def host(self) -> Candidates: ...

    def split(self, prefix: NodeRecord, suffix: NodeRecord) -> None: ...

    def removed(self, record: NodeRecord) -> None: ...

    def next_device_victim(self) -> NodeRecord | None: ...

    def end_device_walk(self) -> None: ...

    def next_host_victim(self) -> NodeRecord | None: ...


class Copies(Protocol):
    """Carries copies between the tiers. The path of a node stays locked until its copy is acknowledged."""

    def back_up(self, node: Node, pages: int) -> None:
        """Device to host, behind what runs; ends with `tree.backed_up(node)`."""
        ...

    def write_back(self, node: Node, pages: int) -> None:
        """Device to host, now: the eviction waits for it."""
        ...

    def load(self, node: Node, pages: int, edge: int) -> None:
        """Host to device, for `node` and its evicted ancestors; ends with `tree.loaded(node, edge)`."""
        ...
