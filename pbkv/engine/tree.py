"""A radix tree over page content ids with the rules of SGLang's unified radix cache: where nodes split, what counts as a leaf, what a lock
protects, and how the logical clock advances. Two pages are equal exactly when their ids are.

The clock orders accesses and nothing else. Within one operation only the order along a path is SGLang's, not the distance, and a path never
holds two candidates of one tier.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pbkv.engine.leaves import Leaves
from pbkv.engine.node import DEVICE_LEAF, NO_LEAF, Keeper, Node
from pbkv.engine.pools import Pool
from pbkv.record import NodeRecord

#: Clock distance of nodes of one path that are touched together; must stay below the step of the clock on the deepest path.
_STEP = 1e-5


class Match(NamedTuple):
    """Longest cached prefix: `device_pages` of it are on the device and end at `device`, `host_pages` more at `best`."""

    device: Node
    device_pages: int
    best: Node
    host_pages: int


class RadixTree(Leaves):
    """Reading and growing. What moves between the tiers is added by `pbkv.engine.tiers`."""

    def __init__(self, keeper: Keeper, device: Pool, host: Pool, page_size: int) -> None:
        super().__init__(keeper, device, host)
        self.page_size = page_size
        self.clock = 0.0
        self._counts = False  # hits matter
        self.now_ns = 0  # wall or engine clock that records are stamped with; 0 = nobody asks
        self.nodes = 0
        self._ids = 0

    def _new_node(self, key: tuple[int, ...], parent: Node) -> Node:
        self._ids += 1
        node = Node(self._ids, key, self.clock)
        self.clock += 2.0
        node.parent = parent
        node.record = NodeRecord(node, node.id, len(key) * self.page_size, self.now_ns)
        parent.children[key[0]] = node
        self.nodes += 1
        return node

    # ---- reading -----------------------------------------------------------------------------------------------------------

    def match(self, pages: tuple[int, ...], limit: int) -> Match:
        """Longest cached prefix of `pages[:limit]`; splits the node it ends in, and marks the path as accessed."""
        node = device = self.root
        offset = device_pages = 0
        whole = limit > 0
        while whole and offset < limit:
            child = node.children.get(pages[offset])
            if child is None or not (child.on_device or child.on_host):
                break
            end = offset + len(child.key)
            whole = end <= limit and child.key == pages[offset:end]
            if not whole:
                child = self._split(child, _common(child.key, pages, offset, limit))
                end = offset + len(child.key)
            node, offset = child, end
            if child.on_device:
                device, device_pages = child, end
        if limit > 0:
            self._touch_path(node)
        return Match(device, device_pages, node, offset - device_pages)

    def _touch_path(self, node: Node) -> None:
        now = self.clock
        self.clock = now + 1.0
        root = self.root
        while node is not root:
            node.last_access_time = now
            now -= _STEP
            node = node.parent

    def walk(self) -> Iterator[Node]:
        """All nodes but the root, parents before children. The tree must not change meanwhile."""
        todo = list(self.root.children.values())
        while todo:
            node = todo.pop()
            yield node
            todo.extend(node.children.values())

    # ---- growing -----------------------------------------------------------------------------------------------------------

    def insert(
        self, start: Node, pages: tuple[int, ...], offset: int, known: int, counted: int, *, first: bool = False, lock: bool = False,
    ) -> Node:
        """Put `pages[offset:]` under `start`, where `pages[:offset]` ends, and return the node they end in.

        The caller holds the device pages of `pages[known:]` and locks the path to `start`; what the tree has already is given back. Nodes
        that end behind `counted` count a hit, those above `start` only if this is the `first` insertion of its call. With `lock` the
        caller's lock on `start` becomes one on the returned node.
        """
        self._touch_path(start)
        if first and self._counts:
            self._hit_above(start)
        node, total = start, len(pages)
        while offset < total:
            child = node.children.get(pages[offset])
            if child is None:
                node = self._add_leaf(node, pages[offset:], lock)
                if self._counts and total > counted:
                    self._hit(node)
                return node
            child = self._pass_through(child, pages, offset, known)
            offset += len(child.key)
            if lock:
                self.lock(child, node)
            if self._counts and offset > counted:
                self._hit(child)
            node = child
        return node

    def _pass_through(self, child: Node, pages: tuple[int, ...], offset: int, known: int) -> Node:
        """The part of `child` that an insertion shares: accessed, on the device, and its pages behind `known` given back or adopted."""
        child.last_access_time = self.clock
        self.clock += 1.0
        end = offset + len(child.key)
        if child.key != pages[offset:end]:
            child = self._split(child, _common(child.key, pages, offset, len(pages)))
            end = offset + len(child.key)
        if child.on_device:
            self.device.give_back(max(0, end - max(known, offset)))
        else:
            self._adopt(child)
            self._update_leaf(child)
            self._update_leaf(child.parent)
            self._restored(child)
        return child

    def _hit_above(self, node: Node) -> None:
        """A call's first insertion counts a hit on the path it found, too; for the host tier."""

    def _hit(self, node: Node) -> None:
        """A call wrote or read the node; for the host tier."""

    def _restored(self, node: Node) -> None:
        """A node of the host alone got device pages from a call that computed them again; for the host tier."""

    def _split(self, child: Node, length: int) -> Node:
        """Cut `child` after `length` pages. The new node is the prefix; the suffix keeps id and record, and counts as accessed now."""
        prefix = self._new_node(child.key[:length], child.parent)
        prefix.on_device, prefix.on_host = child.on_device, child.on_host
        prefix.lock_ref, prefix.host_lock, prefix.hit_count = child.lock_ref, child.host_lock, child.hit_count
        prefix.host_edge, child.host_edge = child.host_edge, 0
        prefix.loading = child.loading
        child.key = child.key[length:]
        child.parent = prefix
        prefix.children[child.key[0]] = child
        prefix.device_children = int(child.on_device)
        child.last_access_time = self.clock
        self.clock += 1.0
        self.keeper.split(prefix.record, child.record)
        self._update_leaf(prefix)
        self._update_leaf(child)
        return prefix

    def _add_leaf(self, parent: Node, key: tuple[int, ...], lock: bool) -> Node:
        """A new device-resident leaf out of pages that were held; locked, it is no candidate before it is unlocked."""
        node, device, pages = self._new_node(key, parent), self.device, len(key)
        node.on_device = True
        parent.device_children += 1
        device.held -= pages
        if lock:
            node.lock_ref = 1
            device.locked += pages
        else:
            device.cached += pages
            self._set_leaf(node, DEVICE_LEAF)
        if parent.leaf:
            self._set_leaf(parent, NO_LEAF)
        return node

    def _adopt(self, node: Node) -> None:
        """An evicted node's pages, computed again and held by a call so far, become the tree's."""
        pages = len(node.key)
        node.on_device = True
        node.parent.device_children += 1
        self.device.held -= pages
        if node.lock_ref:
            self.device.locked += pages
        else:
            self.device.cached += pages

    def _remove(self, node: Node) -> None:
        """Take a node without children out of the tree; it holds no pages any more."""
        del node.parent.children[node.key[0]]
        node.leaf = NO_LEAF
        self.nodes -= 1
        self.keeper.removed(node.record)
        del node.record  # or node and record would keep each other until the garbage collector comes


def _common(key: tuple[int, ...], pages: tuple[int, ...], offset: int, limit: int) -> int:
    """Pages that `key` and `pages[offset:limit]` share; the first one is known to be."""
    most = min(len(key), limit - offset)
    if key[:most] == pages[offset : offset + most]:
        return most
    low, high = 1, most  # invariant: the first `low` pages agree, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        if key[low:middle] == pages[offset + low : offset + middle]:
            low = middle
        else:
            high = middle
    return low
