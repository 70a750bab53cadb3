"""Puts the recorded content of a cache into a fresh engine: what was where, in which order it was used, and whose it was."""

from collections.abc import Sequence

from pbkv.engine.engine import Engine
from pbkv.engine.node import Node
from pbkv.engine.tiers import TwoTierTree
from pbkv.identity import CallIdentity
from pbkv.record import NodeRecord
from pbkv.state import CacheState
from pbkv.whatif.recording import NOWHERE, RecordedCall, RecordedWorkflow, Recording, WarmNode


def plant(engine: Engine, recording: Recording) -> None:
    """The warm nodes as far as both tiers have room for them, the most recently used first. What a larger pool would have kept besides is
    not known: a warm-up before the measured part has to fill it.
    """
    tree = engine.tree
    kept = _fitting(recording.warm_nodes, tree)
    nodes: dict[int, Node] = {}
    for place, (on_device, on_host) in sorted(kept.items()):
        warm = recording.warm_nodes[place]
        parent = tree.root if warm.parent == NOWHERE else nodes[warm.parent]
        node = nodes[place] = tree.plant(parent, warm.pages, float(warm.last_access), on_device=on_device, on_host=on_host)
        node.record.touched, node.record.anonymous, node.record.hits = warm.retired, warm.anonymous, warm.hits
    if engine.follows():
        for workflow in recording.before:
            _follow(engine.manager.state, tree, workflow)


def _fitting(warm: Sequence[WarmNode], tree: TwoTierTree) -> dict[int, tuple[bool, bool]]:
    """Position -> (on the device, on the host) of what fits. A node is kept where its parent is kept: the device holds no node below one
    that it does not hold, and neither tier one whose parent is in none.
    """
    newest = [node.last_access for node in warm]
    for place in range(len(warm) - 1, -1, -1):
        if (parent := warm[place].parent) != NOWHERE:
            newest[parent] = max(newest[parent], newest[place])
    device, host = tree.device.free, tree.host.free
    kept: dict[int, tuple[bool, bool]] = {}
    for place in sorted(range(len(warm)), key=lambda n: (-newest[n], n)):
        node, pages = warm[place], len(warm[place].pages)
        above = (True, True) if node.parent == NOWHERE else kept.get(node.parent, (False, False))
        on_device = node.on_device and above[0] and pages <= device
        on_host = (node.on_host or node.on_device) and any(above) and pages <= host and (node.on_host or not on_device)
        if on_device or on_host:
            kept[place] = on_device, on_host
            device, host = device - pages * on_device, host - pages * on_host
    return kept


def _follow(state: CacheState, tree: TwoTierTree, workflow: RecordedWorkflow) -> None:
    """The workflow's calls so far, as far as the tree still holds what they read and wrote."""
    for call in workflow.calls:
        flow, agent = state.begin_call(CallIdentity(workflow.name, call.agent))
        prompt, output = _records(tree, call)
        state.touch(flow, agent, prompt)
        state.touch(flow, agent, output, output=True)
        state.end_call(flow)


def _records(tree: TwoTierTree, call: RecordedCall) -> tuple[list[NodeRecord], list[NodeRecord]]:
    """Nodes that hold the call's prompt, and those below that hold its output."""
    pages, prompt, output = call.pages + call.output_pages, list[NodeRecord](), list[NodeRecord]()
    node, at = tree.root, 0
    while at < len(pages) and (child := node.children.get(pages[at])) is not None and child.key == pages[at : at + len(child.key)]:
        at += len(child.key)
        (prompt if at <= len(call.pages) else output).append(child.record)
        node = child
    return prompt, output
