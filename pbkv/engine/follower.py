"""What the cache manager is told of a call: who makes it, which nodes it reads and writes, when it ends. As the SGLang plugin tells it."""

from pbkv.engine.requests import Call
from pbkv.engine.tree import RadixTree
from pbkv.identity import CallIdentity
from pbkv.manager import CacheManager
from pbkv.record import NodeRecord


class Follower:
    """Called at every checkpoint of a call's path. `now_ns` stamps accesses; it decides nothing."""

    def __init__(self, manager: CacheManager, page_size: int) -> None:
        self.manager, self._page_size = manager, page_size

    def queued(self, call: Call, tree: RadixTree) -> None:
        """The call waits: what it will read is held, where the policy asks for that."""
        if self.manager.policy.uses_holds:
            found = tree.match(call.prefix, call.fill // self._page_size)
            self.manager.hold(call.number, _path(found.best, tree.root))

    def admitted(self, call: Call) -> None:
        """The call left the queue, into a batch or for good."""
        if self.manager.policy.uses_holds:
            self.manager.release(call.number)

    def checkpoint(self, call: Call, tree: RadixTree, *, output: bool = False) -> None:
        """The call's KV so far is in the tree, new nodes hold what it generated if `output`."""
        first = call.step < 0
        if first:
            self._begin(call)
        path = _path(call.node, call.touched or tree.root)
        call.touched = call.node
        if first:
            self._count_hits(call, path, tree.now_ns)
        state = self.manager.state
        if call.workflow is None:
            state.touch_anonymous(path)
        else:
            state.touch(call.workflow, call.agent, path, step=call.step, output=output)

    def _begin(self, call: Call) -> None:
        request, counts = call.request, self.manager.counts
        counts["calls"] += 1
        call.step = 0
        if not request.attributed:
            counts["unattributed"] += 1
            return
        call.workflow, call.agent = self.manager.state.begin_call(CallIdentity(request.workflow, request.agent, request.final))
        call.step = call.workflow.step

    def _count_hits(self, call: Call, path: list[NodeRecord], now_ns: int) -> None:
        """Nodes inside the cached prefix were read by this call."""
        cached, end = call.device_hit + call.host_hit, 0
        used = self.manager.prefetch.used
        for record in path:
            end += record.tokens
            record.access_ns = now_ns
            if end <= cached:
                record.hits += 1
                used(record)

    def ended(self, call: Call) -> None:
        """The call is over and its KV released; its report has been written, since its workflow may retire now."""
        if call.workflow is not None:
            request = call.request
            if recorder := self.manager.recorder:
                agent = self.manager.state.agent_names[call.agent]
                recorder.call(call.workflow, agent, call.step, call.generated)
            self.manager.state.end_call(call.workflow, final=request.final, text=request.text)


def _path(node: object, stop: object) -> list[NodeRecord]:
    """Records of the nodes below `stop` down to `node`, uppermost first."""
    path: list[NodeRecord] = []
    while node is not stop:
        path.append(node.record)  # type: ignore[attr-defined]
        node = node.parent  # type: ignore[attr-defined]
    path.reverse()
    return path
