"""Two tiers around the tree: eviction, backup, load back. Leaves only, whole nodes, and the host keeps what a path needs above it."""

from typing import Literal

from pbkv.engine.node import HOST_LEAF, NO_LEAF, Copies, Keeper, Node
from pbkv.engine.pools import Pool
from pbkv.engine.tree import RadixTree

WritePolicy = Literal["write_through", "write_through_selective", "write_back"]
#: Hits after which a node is backed up.
THRESHOLD = {"write_through": 1, "write_through_selective": 2, "write_back": 1}
#: A load of fewer tokens is not worth its latency: they are computed again (SGLang's figure).
LOAD_BACK_TOKENS = 10


class TwoTierTree(RadixTree):
    """A radix tree whose device pages have copies in host memory. `host.size` 0 = no host tier."""

    def __init__(self, keeper: Keeper, device: Pool, host: Pool, page_size: int, write_policy: WritePolicy, copies: Copies) -> None:
        super().__init__(keeper, device, host, page_size)
        self.copies = copies
        self.is_write_back = write_policy == "write_back"
        self._threshold = THRESHOLD[write_policy]
        self._counts = host.size > 0 and not self.is_write_back
        self._writes_back = host.size > 0 and self.is_write_back
        self.evicted_retired = 0  # pages evicted from the device that only ended workflows had touched
        self._edges = 0
        # Nodes that may hold both copies while no copy is under way, oldest first; looked at again before use (write_back only).
        self._doubles: dict[int, Node] = {}

    # ---- device eviction ---------------------------------------------------------------------------------------------------

    def evict(self, pages: int) -> int:
        """Evict device leaves until at least `pages` are freed or no candidate is left; returns what was freed."""
        freed = 0
        while freed < pages:
            record = self.keeper.next_device_victim()
            if record is None:
                break
            retired = record.retired  # a record whose node has left the tree no longer knows who touched it
            gone = self._evict_leaf(record.node)  # type: ignore[arg-type]
            freed += gone
            if retired:
                self.evicted_retired += gone
        self.keeper.end_device_walk()
        return freed

    def make_room(self, pages: int) -> bool:
        """Whether `pages` are free on the device, after evicting what that takes."""
        short = pages - self.device.free
        if short > 0:
            self.evict(short)
        return pages <= self.device.free

    def _evict_leaf(self, node: Node) -> int:
        if not self._writes_back:
            node.leaf = NO_LEAF  # the keeper has taken it out of its queue
            return self._demote(node) if node.on_host else self._delete(node)
        if node.on_host:
            return self._demote(node)
        if self._copy_out(node):
            self.copies.write_back(node, len(node.key))
            self._track(node)
            return self._demote(node)
        return self._drop_subtree(node)

    def _demote(self, node: Node) -> int:
        """Free the device pages; the node lives on in host memory."""
        pages = self._leave_device(node)
        self._update_leaf(node)
        if not node.parent.device_children:
            self._update_leaf(node.parent)
        return pages

    def _leave_device(self, node: Node) -> int:
        pages = len(node.key)
        node.on_device = False
        node.parent.device_children -= 1
        self.device.cached -= pages
        self.device.free += pages
        return pages

    def _delete(self, node: Node) -> int:
        """Free the device pages of a leaf that has no copy, and take it out of the tree."""
        pages = self._leave_device(node)
        self._remove(node)
        if self._writes_back:
            self._doubles.pop(node.id, None)
        if not node.parent.device_children:
            self._update_leaf(node.parent)
        return pages

    def _drop_subtree(self, node: Node) -> int:
        """Write back found no room on the host: drop the leaf and the host-only nodes below it, or nothing if one of them is in use."""
        below = [node]
        for each in below:  # grows while it is walked: parents before children
            if each.lock_ref or each.host_lock or each.loading:
                return 0
            below.extend(each.children.values())
        for each in reversed(below[1:]):
            self._leave_host(each)
            self._doubles.pop(each.id, None)
            self._remove(each)
        return self._delete(node)

    # ---- host tier ---------------------------------------------------------------------------------------------------------

    def evict_host(self, pages: int) -> int:
        """Free at least `pages` of host memory, or as much as can be; returns what was freed."""
        freed = self._drop_doubles(pages) if self._writes_back else 0
        while freed < pages:
            record = self.keeper.next_host_victim()
            if record is None:
                break
            node: Node = record.node  # type: ignore[assignment]
            assert node.leaf == HOST_LEAF
            freed += self._leave_host(node)
            self._remove(node)
            self._update_leaf(node.parent)
        return freed

    def _leave_host(self, node: Node) -> int:
        pages = len(node.key)
        node.on_host = False
        self.host.cached -= pages
        self.host.free += pages
        return pages

    def _drop_doubles(self, pages: int) -> int:
        """Write back: copies of device-resident nodes go first; those of evictable leaves last, as they would be copied again soon."""
        freed, swept = 0, list[int]()
        for spare_leaves in (True, False):
            for node in self._doubles.values():
                if freed >= pages:
                    break
                if not (node.on_device and node.on_host):
                    swept.append(node.id)
                elif not (node.loading or node.host_lock or (spare_leaves and node.leaf)):
                    freed += self._leave_host(node)
                    swept.append(node.id)
        for number in swept:
            self._doubles.pop(number, None)
        return freed

    def _track(self, node: Node) -> None:
        if not self._writes_back:
            return
        if node.on_device and node.on_host and not node.loading:
            self._doubles.setdefault(node.id, node)
        else:
            self._doubles.pop(node.id, None)

    def _split(self, child: Node, length: int) -> Node:
        prefix = super()._split(child, length)
        self._track(prefix)
        return prefix

    def _restored(self, node: Node) -> None:
        self._track(node)

    def plant(self, parent: Node, pages: tuple[int, ...], last_access: float, *, on_device: bool, on_host: bool) -> Node:
        """A node as another tree had it, below one that was planted before. There must be room in the tiers it is on."""
        node, size = self._new_node(pages, parent), len(pages)
        node.last_access_time, self.clock = last_access, max(self.clock, last_access + 1.0)
        node.hit_count = self._threshold if on_host else 0
        if on_device:
            node.on_device = True
            parent.device_children += 1
            self.device.free -= size
            self.device.cached += size
        if on_host:
            node.on_host = True
            self.host.free -= size
            self.host.cached += size
        self._update_leaf(parent)
        self._update_leaf(node)
        self._track(node)
        return node

    # ---- backup ------------------------------------------------------------------------------------------------------------

    def _hit_above(self, node: Node) -> None:
        bare: list[Node] = []
        while node is not self.root:
            node.hit_count += 1
            if not node.on_host and node.hit_count >= self._threshold:
                bare.append(node)
            node = node.parent
        for each in reversed(bare):
            self._back_up(each)

    def _hit(self, node: Node) -> None:
        node.hit_count += 1
        if not node.on_host and node.hit_count >= self._threshold:
            self._back_up(node)

    def _back_up(self, node: Node) -> None:
        """Copy the node and what is missing above it, from the top: the host never holds a node without its ancestors."""
        chain: list[Node] = []
        while node is not self.root and not node.on_host:
            chain.append(node)
            node = node.parent
        for each in reversed(chain):
            if not self._copy_out(each):
                return
            self.lock(each)
            self.copies.back_up(each, len(each.key))

    def _copy_out(self, node: Node) -> bool:
        """Reserve host pages for the node and count it as copied; False when the host has no room even after evicting."""
        pages, host = len(node.key), self.host
        short = pages - host.free
        if short > 0 and self.evict_host(short) < short:
            return False
        host.free -= pages
        host.cached += pages
        node.on_host = True
        return True

    def backed_up(self, node: Node) -> None:
        """The copy `copies.back_up` began for this node is complete."""
        self.unlock(node)

    # ---- load back ---------------------------------------------------------------------------------------------------------

    def load_back(self, node: Node) -> int:
        """Begin to load the node and its evicted ancestors, evicting for room; pages under way, 0 = refused. They count as resident at
        once, and the path is locked until `loaded`.
        """
        chain: list[Node] = []
        up = node
        while not up.on_device:
            chain.append(up)
            up = up.parent
        pages = sum(len(each.key) for each in chain)
        if pages * self.page_size < LOAD_BACK_TOKENS:
            return 0
        edge = self.lock_host(node)
        self.lock(node)
        if not self.make_room(pages):
            self.unlock(node)
            self.unlock_host(node, edge)
            return 0
        for each in reversed(chain):
            self._materialize(each, node)
        self.copies.load(node, pages, edge)
        return pages

    def _materialize(self, node: Node, anchor: Node) -> None:
        pages = len(node.key)
        node.on_device = True
        node.parent.device_children += 1
        self.device.free -= pages
        self.device.locked += pages
        if self._writes_back:
            node.loading = anchor.id

    def loaded(self, node: Node, edge: int) -> None:
        """The load anchored on this node is complete."""
        self.unlock(node)
        self.unlock_host(node, edge)
        anchor = node.id
        while self._writes_back and node is not self.root:
            if node.loading == anchor:
                node.loading = 0
                self._track(node)
            node = node.parent

    def lock_host(self, node: Node) -> int:
        """Keep the node's host copy; returns the edge that `unlock_host` needs, 0 when there is nothing to keep."""
        if not node.on_host and not self._writes_back:
            return 0
        if not node.host_edge:
            self._edges += 1
            node.host_edge = self._edges
        node.host_lock += 1
        self._update_leaf(node)
        return node.host_edge

    def unlock_host(self, node: Node, edge: int) -> None:
        """Undo one `lock_host`, on all parts the node was split into meanwhile."""
        while edge:
            node.host_lock -= 1
            self._update_leaf(node)
            if node.host_edge == edge:
                return
            node = node.parent


