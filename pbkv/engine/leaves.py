"""What a lock protects and what counts as a leaf: SGLang's rules, and the page accounts that follow from them."""

from pbkv.engine.node import DEVICE_LEAF, HOST_LEAF, NO_LEAF, Keeper, Node
from pbkv.engine.pools import Pool


class Leaves:
    """The root, the locks on paths, and the candidates of both tiers, which the keeper's queues mirror in the same breath."""

    def __init__(self, keeper: Keeper, device: Pool, host: Pool) -> None:
        self.keeper, self.device, self.host = keeper, device, host
        self._device_queue, self._host_queue = keeper.device, keeper.host
        self.root = Node(0, (), 0.0)
        self.root.parent = None  # type: ignore[assignment]  # only the root has none
        self.root.on_device = True
        self.root.lock_ref = 1  # never a leaf

    # ---- locks -------------------------------------------------------------------------------------------------------------

    def lock(self, node: Node, above: Node | None = None) -> None:
        """Protect the path from the root to `node`, evicted nodes at its end included; only the part below `above`, if given: a lock on
        `above` becomes one on `node`.
        """
        device, stop = self.device, above or self.root
        while node is not stop:
            if not node.lock_ref:
                if node.on_device:
                    pages = len(node.key)
                    device.cached -= pages
                    device.locked += pages
                if node.leaf:
                    self._set_leaf(node, NO_LEAF)
            node.lock_ref += 1
            node = node.parent

    def unlock(self, node: Node) -> None:
        """Undo one `lock(node)`, also when the path was split meanwhile."""
        root, device = self.root, self.device
        while node is not root:
            if node.lock_ref == 1:
                node.lock_ref = 0
                if node.on_device:
                    pages = len(node.key)
                    device.locked -= pages
                    device.cached += pages
                    if not node.device_children:
                        self._set_leaf(node, DEVICE_LEAF)
                else:
                    self._update_leaf(node)
            else:
                node.lock_ref -= 1
            node = node.parent

    # ---- leaves ------------------------------------------------------------------------------------------------------------

    def _update_leaf(self, node: Node) -> None:
        """D-leaf: on the device, no child there, unlocked. H-leaf: on the host alone, no child, unlocked on both tiers."""
        leaf = NO_LEAF
        if not node.lock_ref:
            if node.on_device:
                leaf = NO_LEAF if node.device_children else DEVICE_LEAF
            elif node.on_host and not node.children and not node.host_lock:
                leaf = HOST_LEAF
        if leaf != node.leaf:
            self._set_leaf(node, leaf)

    def _set_leaf(self, node: Node, leaf: int) -> None:
        was = node.leaf
        if was == leaf:
            return
        node.leaf = leaf
        if was == DEVICE_LEAF:
            self._device_queue.discard(node.record)
        elif was == HOST_LEAF:
            self._host_queue.discard(node.record)
        if leaf == DEVICE_LEAF:
            self._device_queue.add(node.record)
        elif leaf == HOST_LEAF:
            self._host_queue.add(node.record)
