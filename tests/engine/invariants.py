"""What must hold of a tree between any two operations, found by walking all of it."""

from pbkv.engine.engine import Engine
from pbkv.engine.node import DEVICE_LEAF, HOST_LEAF, NO_LEAF, Node
from pbkv.engine.requests import WAITING
from pbkv.engine.tiers import TwoTierTree


def check_engine(engine: Engine) -> None:
    """The tree, and what running calls hold of the device."""
    tree, scheduler, page = engine.tree, engine.scheduler, engine.settings.page_size
    check_tree(tree)
    decoding, held, context = scheduler.decoding, 0, 0
    running = [c for c in engine._calls.values() if c.where != WAITING]
    for call in running:
        done = call.done + (decoding.generated(call) - call.generated if call in decoding.calls else 0)
        held += -(-done // page) - call.tree_pages
        context += done if call in decoding.calls else 0
        assert _depth_pages(tree, call.node) == call.tree_pages
        assert call.node.lock_ref > 0
    assert tree.device.held == held
    assert decoding.kv_tokens == context
    assert len(decoding) <= scheduler.max_running
    assert len(running) + engine.waiting == len(engine._calls)


def _depth_pages(tree: TwoTierTree, node: Node) -> int:
    pages = 0
    while node is not tree.root:
        pages += len(node.key)
        node = node.parent
    return pages


def check_tree(tree: TwoTierTree) -> None:
    """Accounts, leaves, locks and structure agree with each other."""
    nodes = list(tree.walk())
    assert tree.nodes == len(nodes)
    _check_accounts(tree, nodes)
    for node in nodes:
        _check_node(tree, node)
    queues = tree.keeper
    assert set(queues.device._alive) == {n.id for n in nodes if n.leaf == DEVICE_LEAF}
    assert set(queues.host._alive) == {n.id for n in nodes if n.leaf == HOST_LEAF}


def _check_accounts(tree: TwoTierTree, nodes: list[Node]) -> None:
    device, host = tree.device, tree.host
    assert device.balanced() and host.balanced()
    assert device.cached == sum(len(n.key) for n in nodes if n.on_device and not n.lock_ref)
    assert device.locked == sum(len(n.key) for n in nodes if n.on_device and n.lock_ref)
    assert host.cached == sum(len(n.key) for n in nodes if n.on_host)
    assert host.locked == host.held == 0


def _check_node(tree: TwoTierTree, node: Node) -> None:
    parent = node.parent
    assert node.key and parent.children[node.key[0]] is node
    assert node.on_device or node.on_host, "a node without pages"
    assert parent.on_device or not node.on_device, "an ancestor left the device first"
    if not tree.is_write_back:
        assert parent is tree.root or parent.on_host or not node.on_host, "an ancestor left the host first"
    assert node.lock_ref >= 0 and node.host_lock >= 0
    if parent is not tree.root:
        assert parent.lock_ref >= node.lock_ref, "a lock that does not reach the root"
    assert node.device_children == sum(c.on_device for c in node.children.values())
    assert node.record.node is node and node.record.tokens == len(node.key) * tree.page_size
    assert node.leaf == _leaf(node)


def _leaf(node: Node) -> int:
    if node.lock_ref:
        return NO_LEAF
    if node.on_device:
        return NO_LEAF if any(c.on_device for c in node.children.values()) else DEVICE_LEAF
    return HOST_LEAF if node.on_host and not node.children and not node.host_lock else NO_LEAF
