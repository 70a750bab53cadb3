"""The engine's side of the event stream: batches, calls, pages, idle windows of the link, samples. Decides nothing."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pbkv.engine.node import Node
from pbkv.engine.requests import Call, Finished
from pbkv.events.writer import EventWriter
from pbkv.telemetry import CallReport, Telemetry

if TYPE_CHECKING:
    from pbkv.engine.engine import Engine

#: Engine seconds between samples of occupancy.
PERIOD_S = 0.5
#: Nodes of a snapshot written per step, so that a large tree never makes one message huge.
SNAPSHOT_CHUNK = 128
#: Page ids remembered as already written; a forgotten one is written again, which readers tolerate.
MAX_SEEN = 1_000_000


class PageLog:
    """Ids of pages for the log: a keyed digest chain over content ids, each id written once. The key names the run, never the content."""

    def __init__(self, telemetry: Telemetry, seed: int) -> None:
        self._telemetry = telemetry
        self._key = seed.to_bytes(16, "little", signed=True)
        self._seen: OrderedDict[int, None] = OrderedDict()

    def name_path(self, path: list[Node]) -> tuple[int, int]:
        """(id of the last page, pages) of a path of nodes from the root down."""
        parent = depth = 0
        for node in path:
            parent = node.record.page or self._name(node, parent, depth)
            depth += len(node.key)
        return parent, depth

    def _name(self, node: Node, parent: int, depth: int) -> int:
        for n, content in enumerate(node.key, start=1):
            data = parent.to_bytes(8, "little") + content.to_bytes(16, "little", signed=True)
            page = int.from_bytes(hashlib.blake2b(data, key=self._key, digest_size=8).digest(), "little") or 1
            if page not in self._seen:
                self._write(page, parent, depth + n)
            parent = page
        node.record.page = parent
        return parent

    def _write(self, page: int, parent: int, depth: int) -> None:
        self._seen[page] = None
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        self._telemetry.page(page, parent, depth)


class Reporter:
    """Fed by the engine at each step. Stamps records with engine time; the writer brings its own clocks."""

    def __init__(self, engine: "Engine", writer: EventWriter) -> None:
        self._engine = engine
        manager = engine.manager
        self.telemetry = Telemetry(writer, manager.tree.tier_of, manager.tree.parent_of, manager.state.agent_names)
        self.telemetry.now_ns = self._now_ns
        manager.observe_with(self.telemetry)
        self._pages = PageLog(self.telemetry, engine.settings.seed)
        self._next_sample = self._next_snapshot = 0.0
        self._snapshot: Iterator[Node] = iter(())

    def _now_ns(self) -> int:
        return int(self._engine.clock.now * 1e9)

    # ---- a step ------------------------------------------------------------------------------------------------------------

    def step_begins(self, mode: str, started: float, ended: float, requests: int, tokens: int) -> None:
        """A step is about to have its effects. Decode steps taken at once are one row: `tokens` / `requests` steps."""
        engine = self._engine
        prefetch = engine.manager.prefetch
        idle = mode == "decode" and not engine.waiting and engine.settings.host_tokens > 0 and engine.copies.only_prefetch(prefetch.flying)
        prefetch.window(int(started * 1e9), idle, engine.timing.link_bytes_per_s)
        self.telemetry.batch(mode, requests, tokens, (ended - started) * 1e6)
        engine.tree.now_ns = int(ended * 1e9)

    def step_ended(self) -> None:
        """Everything of the step is known: samples that are due, then one message."""
        engine = self._engine
        if engine.clock.now >= self._next_sample:
            self._next_sample = engine.clock.now + PERIOD_S
            self._occupancy()
        self._score_snapshot()
        self.telemetry.end_step(engine.manager.step)

    def flushed(self) -> None:
        """The tree is a new one: a snapshot of the old one ends here."""
        self._snapshot = iter(())

    def call_ended(self, call: Call, ended: Finished) -> None:
        """A call left the engine."""
        request = ended.request
        node, page, pages = self._end_of(call)
        name = self._engine.manager.state.agent_names[call.agent] if call.workflow else ""
        self.telemetry.call(CallReport(
            call.workflow, name, max(call.step, 0), request.final and call.workflow is not None, ended.aborted, request.prompt_tokens,
            ended.device_hit, ended.host_hit, ended.output_tokens,
            _ms(ended.arrived, ended.admitted), _ms(ended.admitted, ended.first_token), _ms(ended.arrived, ended.first_token),
            _ms(ended.arrived, ended.ended), node, page, pages,
        ))

    def _end_of(self, call: Call) -> tuple[int, int, int]:
        if call.touched is None:
            return 0, 0, 0
        path, node = list[Node](), call.touched
        while node is not self._engine.tree.root:
            path.append(node)
            node = node.parent
        path.reverse()
        return call.touched.id, *self._pages.name_path(path)

    # ---- samples -----------------------------------------------------------------------------------------------------------

    def _occupancy(self) -> None:
        engine = self._engine
        device, host, page = engine.tree.device, engine.tree.host, engine.settings.page_size
        retired = host_retired = 0
        for node in engine.tree.walk():
            if node.record.retired:
                retired += len(node.key) * (node.on_device and not node.lock_ref)
                host_retired += len(node.key) * node.on_host
        tokens = (
            device.free, device.cached - retired, retired, device.locked + device.held, host.free, host.used - host_retired, host_retired,
        )
        leaves, workflows = len(engine.manager.device), len(engine.manager.state.live)
        self.telemetry.occupancy(*(n * page for n in tokens), leaves, engine.running, engine.waiting, workflows)

    def _score_snapshot(self) -> None:
        engine = self._engine
        if engine.clock.now >= self._next_snapshot:
            self._next_snapshot = engine.clock.now + engine.knobs.number("score_snapshot_s")
            self._snapshot = iter(list(engine.tree.walk()))
        for _ in range(SNAPSHOT_CHUNK):
            node = next(self._snapshot, None)
            if node is None:
                return
            if node.on_device or node.on_host:  # else it left the tree since the snapshot began
                self.telemetry.node_score(node.record, snapshot=True)


def _ms(start: float, end: float) -> float:
    """Milliseconds between two engine times; 0 when either never came."""
    return max(0.0, (end - start) * 1e3) if start >= 0 and end >= 0 else 0.0
