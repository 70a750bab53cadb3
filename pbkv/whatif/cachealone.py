"""The cache alone: the same tree and policies, fed with the calls of a recording one after the other, without time. For hit rates.

Each call looks its prompt up, loads back what the host has of it, makes room, puts its prompt into the tree, then its output, and is over
before the next one comes. So nothing waits in a queue, no other call holds its path, and copies are complete before the next step: what
depends on those (paths of queued calls, prefetch) has no effect here.
"""

from collections import deque
from collections.abc import Sequence

from pbkv.engine.node import Node
from pbkv.engine.pools import Pool
from pbkv.engine.settings import EngineSettings
from pbkv.engine.tiers import TwoTierTree
from pbkv.engine.view import NodeView
from pbkv.identity import CallIdentity
from pbkv.knobs import KnobSet
from pbkv.manager import CacheManager
from pbkv.predictor.base import Predictor
from pbkv.predictor.markov import OnlineMarkov
from pbkv.record import NodeRecord
from pbkv.whatif.bound import Bound
from pbkv.whatif.recording import RecordedCall, RecordedWorkflow


class SettledCopies:
    """Copies that are complete when `settle` is called: between a call's prompt and its output, and when it is over."""

    tree: TwoTierTree

    def __init__(self) -> None:
        self._backups: deque[Node] = deque()
        self._loads: deque[tuple[Node, int]] = deque()
        self.backup_pages = self.load_pages = 0

    def back_up(self, node: Node, pages: int) -> None:
        self.backup_pages += pages
        self._backups.append(node)

    def write_back(self, node: Node, pages: int) -> None:
        self.backup_pages += pages

    def load(self, node: Node, pages: int, edge: int) -> None:
        self.load_pages += pages
        self._loads.append((node, edge))

    def settle(self) -> None:
        """Acknowledge everything under way, oldest first."""
        while self._backups:
            self.tree.backed_up(self._backups.popleft())
        while self._loads:
            self.tree.loaded(*self._loads.popleft())


class CacheAlone:
    """One tree with its manager. `play` is a whole call. Of the knobs, `prefetch` is without meaning.

    `bound` takes the place of the knob's policy; it is not told of workflows.
    """

    def __init__(
        self, settings: EngineSettings, knobs: KnobSet, predictor: Predictor | None = None, bound: Bound | None = None,
    ) -> None:
        page = self.page_size = settings.page_size
        knobs = KnobSet({**knobs.values, "prefetch": "off"})
        self.manager = CacheManager(NodeView(), knobs, predictor or OnlineMarkov(), bytes_per_token=1, timer=lambda: 0)
        self.copies = SettledCopies()
        self.tree = TwoTierTree(
            self.manager, Pool(settings.device_tokens, page), Pool(settings.host_tokens, page), page, settings.write_policy, self.copies,
        )
        self.copies.tree = self.tree
        self._tiered = settings.host_tokens > 0
        self._follows = bound is None and knobs["policy"] != "lru"
        if bound is not None:
            bound.rekeyed = self.manager.rekeyed
            self.manager.use(bound)

    def play(self, workflow: RecordedWorkflow, call: RecordedCall) -> tuple[int, int] | None:
        """(pages found on the device, pages loaded back from the host); None = the call is longer than the device pool and was refused."""
        tree, pages = self.tree, call.pages
        if len(pages) + len(call.output_pages) > tree.device.size:
            return None
        found = tree.match(pages, (call.prompt_tokens - 1) // self.page_size)
        end, device, host = found.device, found.device_pages, found.host_pages
        tree.lock(end)
        if host:
            if tree.load_back(found.best):
                tree.lock(found.best)
                tree.unlock(end)
                end = found.best
                self.copies.settle()
            else:
                host = 0
        node = self._write(end, pages[device + host :] if device or host else pages, first=True)
        if self._follows:
            self._follow(workflow, call, node)
        else:
            self._over(node, call)
        return device, host

    def _write(self, end: Node, pages: Sequence[int], *, first: bool) -> Node:
        """Put pages below `end`, whose path is locked; the lock reaches to their end."""
        tree, count = self.tree, len(pages)
        tree.make_room(count)
        tree.device.take(count)
        return tree.insert(end, tuple(pages), 0, 0, 0, first=first, lock=True)

    def _over(self, node: Node, call: RecordedCall) -> Node:
        """Prompt and output are in the tree, unlocked; returns where the output ends."""
        if self._tiered:
            self.copies.settle()
        if call.output_pages:
            node = self._write(node, call.output_pages, first=False)
        self.tree.unlock(node)
        if self._tiered:
            self.copies.settle()
        return node

    def _follow(self, workflow: RecordedWorkflow, call: RecordedCall, node: Node) -> None:
        """The call with its manager told of it, in the order in which an engine does."""
        state, root = self.manager.state, self.tree.root
        self.manager.counts["calls"] += 1
        if not workflow.attributed:
            state.touch_anonymous(_path(node, root))
            state.touch_anonymous(_path(self._over(node, call), node))
            return
        live, agent = state.begin_call(CallIdentity(workflow.name, call.agent, call.final))
        state.touch(live, agent, _path(node, root))
        end = self._over(node, call)
        if end is not node:
            state.touch(live, agent, _path(end, node), output=True)
        state.end_call(live, final=call.final, text=call.text)


def _path(node: Node, stop: Node) -> list[NodeRecord]:
    """Records of the nodes below `stop` down to `node`, uppermost first."""
    path: list[NodeRecord] = []
    while node is not stop:
        path.append(node.record)
        node = node.parent
    path.reverse()
    return path
