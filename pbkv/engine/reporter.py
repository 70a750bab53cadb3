"""The engine's side of the event stream: batches, calls, pages, idle windows of the link, samples. Decides nothing."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from pbkv.engine.facts import engine_facts, serving_facts
from pbkv.engine.node import Node
from pbkv.engine.requests import Call, Finished
from pbkv.events.writer import EventWriter
from pbkv.telemetry import CallReport, Telemetry
from pbkv.workflow import Workflow

if TYPE_CHECKING:
    from pbkv.engine.engine import Engine

#: Engine seconds between samples of occupancy.
PERIOD_S = 0.5
#: Engine seconds between two tellings of what the engine is, so that a collector that came late knows, too.
SETTINGS_S = 60.0
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
        node.record.page = self.name_pages(node.key, parent, depth)
        return node.record.page

    def name_pages(self, contents: tuple[int, ...], parent: int, depth: int) -> int:
        """Id of the last page of `contents` behind `parent`, which is the page at `depth`."""
        for n, content in enumerate(contents, start=1):
            data = parent.to_bytes(8, "little") + content.to_bytes(16, "little", signed=True)
            page = int.from_bytes(hashlib.blake2b(data, key=self._key, digest_size=8).digest(), "little") or 1
            if page not in self._seen:
                self._write(page, parent, depth + n)
            parent = page
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
        self.telemetry.now_ns, self.telemetry.now_s = self._now_ns, self._now_s
        self.telemetry.arrivals = lambda: engine.arrivals
        manager.observe_with(self.telemetry)
        self._pages = PageLog(self.telemetry, engine.settings.seed)
        self._next_sample = self._next_snapshot = self._next_settings = 0.0
        self._snapshot: Iterator[Node] | None = None

    def _now_ns(self) -> int:
        return int(self._engine.clock.now * 1e9)

    def _now_s(self) -> float:
        return self._engine.clock.now

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
        if engine.clock.now >= self._next_settings:
            self._next_settings = engine.clock.now + SETTINGS_S
            self.telemetry.settings(engine_facts(engine.settings) | serving_facts(engine.knobs, engine.manager.predictor))
        self._score_snapshot()
        self.telemetry.end_step(engine.manager.step)

    def flushed(self) -> None:
        """The tree is a new one: a snapshot of the old one ends here."""
        self._snapshot = None

    def call_ended(self, call: Call, ended: Finished) -> None:
        """A call left the engine."""
        request = ended.request
        node, page, pages = self._end_of(call)
        workflow, agent, step = self._caller(call)
        self.telemetry.call(CallReport(
            workflow, agent, step, request.final and workflow is not None, ended.aborted, request.prompt_tokens,
            ended.device_hit, ended.host_hit, ended.output_tokens,
            _ms(ended.arrived, ended.admitted), _ms(ended.admitted, ended.first_token), _ms(ended.arrived, ended.first_token),
            _ms(ended.arrived, ended.ended), node, page, pages, ended.arrived, ended.ended, call.announced, call.place,
        ))

    def _end_of(self, call: Call) -> tuple[int, int, int]:
        """(end node, last page, pages); of a call that did not get through its prompt, the prompt's all the same."""
        end = call.touched or self._engine.tree.root
        page, depth = self._pages.name_path(self._path(end))
        rest = call.request.pages[depth:]
        return end.id, self._pages.name_pages(rest, page, depth), depth + len(rest)

    def _path(self, node: Node) -> list[Node]:
        """Nodes from below the root down to `node`."""
        root, path = self._engine.tree.root, list[Node]()
        while node is not root:
            path.append(node)
            node = node.parent
        path.reverse()
        return path

    def _caller(self, call: Call) -> tuple[Workflow | None, str, int]:
        """(workflow, agent, step) of a call, also of one that nobody was told of because it never ran."""
        request, state = call.request, self._engine.manager.state
        if call.workflow is not None:
            return call.workflow, state.agent_names[call.agent], call.step
        if not request.attributed or call.step >= 0:
            return None, "", 0
        workflow = state.live.get(request.workflow) or Workflow(request.workflow, 0, state.now)
        return workflow, request.agent, workflow.calls

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
        # One is finished before the next begins, or a large tree would never be told to its end.
        if self._snapshot is None:
            if engine.clock.now < self._next_snapshot:
                return
            self._next_snapshot = engine.clock.now + engine.knobs.number("score_snapshot_s")
            self._snapshot = iter(list(engine.tree.walk()))
        nodes = list(islice(self._snapshot, SNAPSHOT_CHUNK))
        if len(nodes) < SNAPSHOT_CHUNK:
            self._snapshot = None
        for node in nodes:
            if node.on_device or node.on_host:  # else it left the tree since the snapshot began
                self._tell(node)

    def _tell(self, node: Node) -> None:
        record = node.record
        if not record.page:
            self._pages.name_path(self._path(node))
        self.telemetry.node_score(record, snapshot=True, workflow=self._engine.manager.event_id(record.last_workflow))


def _ms(start: float, end: float) -> float:
    """Milliseconds between two engine times; 0 when either never came."""
    return max(0.0, (end - start) * 1e3) if start >= 0 and end >= 0 else 0.0
