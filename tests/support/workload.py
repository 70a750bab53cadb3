"""A deterministic stand-in for a serving engine: plays agent workflows on a virtual clock and writes plausible events.

The numbers hang together: hits + recomputed = prompt, tokens move between the occupancy states, every retirement follows an
end, every prefetch outcome follows its decision, and about 75 % of the top-1 predictions name the agent that really comes next.
"""

import random
from dataclasses import dataclass, field

from pbkv.events.schema import (
    BY_NAME,
    CALL_STATUS,
    DECISIONS,
    MODES,
    PHASES,
    PREFETCH_RESULTS,
    REASONS,
    SOURCES,
    WORKFLOW_EVENTS,
    Namespace,
)
from pbkv.events.writer import EventWriter
from pbkv.knobs import K_MAX, KNOBS

AGENTS = ("planner", "searcher", "coder", "tester", "critic", "writer")
STEP_NS = 20_000_000  # one scheduler step
PAGE_TOKENS = 64
DEVICE_TOKENS, HOST_TOKENS = 60_000, 120_000
TOKEN_BYTES = 98_304
LINK_BYTES_PER_S = 20e9
TIERS = BY_NAME["node_score"].field("tier").values
#: Chance that the top-1 prediction names what really comes next.
RIGHT = 0.75
END = "END"


@dataclass
class Clock:
    """Virtual clocks, ns; the workload moves them one scheduler step at a time."""

    mono_ns: int = 1_000_000_000
    wall_ns: int = 1_767_268_800_000_000_000  # 2026-01-01 12:00 UTC


@dataclass
class Node:
    """A radix-tree node."""

    id: int
    parent: int
    tokens: int
    workflows: set[int]
    born: int
    access: int
    owner: int
    hits: int = 0
    device: bool = True
    host: bool = False
    prefetch: int = 0
    score: float = 0.0


@dataclass
class Flow:
    """A workflow: the agents it will call, in order, and where it stands."""

    id: int
    plan: list[str]
    next_at: int
    step: int = 0
    path: list[Node] = field(default_factory=list[Node])
    last_page: int = 0
    pages: int = 0
    named: bool = True
    ended_at: int | None = None


class Workload:
    """Writes the events of one server into `writer`; call `step()` once per scheduler step, it flushes."""

    def __init__(self, writer: EventWriter, clock: Clock, seed: int = 0, *, workflows_per_s: float = 1.5, control_url: str = "") -> None:
        self.writer, self.clock, self.rng = writer, clock, random.Random(seed)
        self._rate = workflows_per_s
        self._step = self._count = self._calls = 0
        self._ids = self._pages = self._prefetches = self._access = 0
        self._flows: list[Flow] = []
        self._nodes: dict[int, Node] = {}
        self._issued: list[tuple[int, Node, int]] = []
        self._version = 1
        self._gamma = 0.8
        self._emit = writer.emit
        self._agents = {a: writer.intern(Namespace.AGENT, a) for a in AGENTS}
        writer.intern(Namespace.ENGINE, "synthetic")
        writer.intern(Namespace.MODEL, "synthetic-8b")
        writer.intern(Namespace.CONTROL_URL, control_url or "http://127.0.0.1:30000")
        self._root = self._node(0, 1024, set(), 0)

    def step(self) -> None:
        """One scheduler step: starts, calls, ends, evictions, a window, samples; then one message."""
        self._step += 1
        self.clock.mono_ns += STEP_NS
        self.clock.wall_ns += STEP_NS
        if self.rng.random() < self._rate * STEP_NS / 1e9 or self._step == 1:
            self._start()
        due = [f for f in self._flows if f.ended_at is None and f.next_at <= self._step]
        for flow in due:
            self._call(flow)
        self._retire()
        self._make_room()
        self._link(bool(due))
        self._samples(len(due))
        self.writer.flush(self._step)

    @property
    def _now(self) -> float:
        return self.clock.mono_ns / 1e9

    def run(self, seconds: float) -> int:
        """Steps for `seconds` of virtual time; returns how many."""
        steps = int(seconds * 1e9 / STEP_NS)
        for _ in range(steps):
            self.step()
        return steps

    def _start(self) -> None:
        self._count += 1
        workflow = self.writer.intern(Namespace.WORKFLOW, f"wf-{self._count:05d}")
        plan = ["planner"]
        for _ in range(self.rng.randint(1, 9)):
            plan.append(self._likely(plan[-1]) if self.rng.random() < 0.8 else self.rng.choice(AGENTS))
        flow = Flow(workflow, plan, self._step, path=[self._root], named=self.rng.random() > 0.04)
        if flow.named:
            self._emit["workflow"](workflow, WORKFLOW_EVENTS.index("start"), REASONS.index("none"), 0, 0, 0, self._now)
        self._flows.append(flow)

    @staticmethod
    def _likely(agent: str) -> str:
        return AGENTS[(AGENTS.index(agent) + 1) % len(AGENTS)]

    def _node(self, parent: int, tokens: int, workflows: set[int], owner: int) -> Node:
        self._ids += 1
        self._access += 1
        node = Node(self._ids, parent, tokens, workflows, self.clock.mono_ns, self._access, owner)
        self._nodes[node.id] = node
        return node

    def _call(self, flow: Flow) -> None:
        agent, final = flow.plan[flow.step], flow.step + 1 == len(flow.plan)
        device = sum(n.tokens for n in flow.path if n.device)
        host = sum(n.tokens for n in flow.path if n.host and not n.device)
        lost = sum(n.tokens for n in flow.path if not n.device and not n.host)
        fresh, output = self.rng.randrange(2, 24) * PAGE_TOKENS, self.rng.randint(16, 400)
        for node in flow.path:
            self._touch(flow, node)
        new = self._node(flow.path[-1].id, fresh, {flow.id}, flow.id)
        flow.path.append(new)
        self._write_pages(flow, fresh // PAGE_TOKENS)
        recomputed = fresh + lost
        self._calls += 1
        queue, prefill = self.rng.expovariate(1 / 6), 8 + recomputed / 40 + host / 400
        e2e = queue + prefill + output * 14
        named = flow.named
        self._emit["call"](
            flow.id if named else 0, self._agents[agent] if named else 0, flow.step, named, final and named, CALL_STATUS.index("done"),
            device + host + recomputed, device, host, recomputed, output, queue, prefill, queue + prefill, e2e,
            new.id, flow.last_page, flow.pages, self._now, self._now + e2e / 1e3, output, self._calls,
        )
        if named:
            self._predict(flow)
        self._score(new, 0)
        flow.step += 1
        flow.next_at = self._step + int(e2e * 1e6 / STEP_NS) + self.rng.randint(1, 60)
        if final:
            self._end(flow)

    def _touch(self, flow: Flow, node: Node) -> None:
        self._access += 1
        node.access, node.owner = self._access, flow.id
        node.hits += node.device or node.host
        node.device, node.host = True, node.host and node.device
        node.workflows.add(flow.id)
        if node.prefetch:
            self._prefetch_row(node, "outcome", "used")
            node.prefetch = 0

    def _write_pages(self, flow: Flow, count: int) -> None:
        for _ in range(count):
            self._pages += 1
            flow.pages += 1
            self._emit["page"](self._pages, flow.last_page, flow.pages)
            flow.last_page = self._pages

    def _predict(self, flow: Flow) -> None:
        """Rows for every horizon; the truth gets the top position with probability RIGHT."""
        for horizon in range(1, K_MAX + 1):
            at = flow.step + horizon
            truth = flow.plan[at] if at < len(flow.plan) else END
            shown = truth if self.rng.random() < RIGHT ** (1 + (horizon - 1) / 4) else self.rng.choice([a for a in AGENTS if a != truth])
            p_end = 0.72 if shown == END else 0.08
            survival = max(0.05, 1 - horizon * 0.1)
            latency = self.rng.uniform(60, 140)
            if shown == END:
                self._emit["prediction"](flow.id, flow.step, horizon, 0, 0, 0.0, p_end, survival, 1, latency)
                continue
            second = self._likely(shown)
            self._emit["prediction"](flow.id, flow.step, horizon, 0, self._agents[shown], 0.78, p_end, survival, 1, latency)
            self._emit["prediction"](flow.id, flow.step, horizon, 1, self._agents[second], 0.15, p_end, survival, 1, latency)

    def _end(self, flow: Flow) -> None:
        flow.ended_at = self._step
        if flow.named:
            self._emit["workflow"](flow.id, WORKFLOW_EVENTS.index("end"), REASONS.index("final"), flow.step, 0, 0, self._now)

    def _retire(self) -> None:
        for flow in [f for f in self._flows if f.ended_at is not None and f.ended_at < self._step]:
            self._flows.remove(flow)
            for node in flow.path:
                node.workflows.discard(flow.id)
            gone = [n for n in flow.path if self._retired(n)]
            device, host = sum(n.tokens for n in gone if n.device), sum(n.tokens for n in gone if n.host)
            if flow.named:
                self._emit["workflow"](flow.id, WORKFLOW_EVENTS.index("retire"), REASONS.index("final"), flow.step, device, host, self._now)

    def _retired(self, node: Node) -> bool:
        return not node.workflows and node is not self._root

    def _make_room(self) -> None:
        """Evict to the host above 95 % of the device, and from the host above 95 % of the host."""
        self._evict([n for n in self._nodes.values() if n.device], 0.95 * DEVICE_TOKENS, "device")
        self._evict([n for n in self._nodes.values() if n.host and not n.device], 0.95 * HOST_TOKENS, "host")

    def _evict(self, held: list[Node], limit: float, tier: str) -> None:
        excess = sum(n.tokens for n in held) - limit
        if excess <= 0:
            return
        held = [n for n in held if n is not self._root]
        held.sort(key=lambda n: (not self._retired(n), n.score, n.access))
        for n, node in enumerate(held):
            if excess <= 0:
                return
            excess -= node.tokens
            self._victim(node, tier, len(held) - n)

    def _victim(self, node: Node, tier: str, leaves: int) -> None:
        keeps = tier == "device" and (node.host or not self._retired(node))
        why = "retired" if self._retired(node) else ("tie" if self.rng.random() < 0.2 else "scored")
        self._emit["eviction"](
            node.id, node.tokens, TIERS.index(tier), TIERS.index("host" if keeps else "none"), DECISIONS.index(why), node.score,
            (self.clock.mono_ns - node.born) / 1e6, self.rng.uniform(5, 5000), node.hits, leaves, self.rng.randint(800, 4000), node.owner,
        )
        if node.prefetch:
            self._prefetch_row(node, "outcome", "evicted_unused")
            node.prefetch = 0
        node.device, node.host = False, keeps
        if not keeps and self._retired(node):
            del self._nodes[node.id]

    def _prefetch_row(self, node: Node, phase: str, result: str, number: int | None = None) -> None:
        number = node.prefetch if number is None else number
        self._emit["prefetch"](
            number, PHASES.index(phase), PREFETCH_RESULTS.index(result),
            node.id, node.tokens, node.tokens * TOKEN_BYTES, node.score, node.owner,
        )

    def _link(self, prefilling: bool) -> None:
        """An idle window in pure-decode steps: complete what was issued, then maybe prefetch one node."""
        for number, node, _ in [i for i in self._issued if i[2] < self._step]:
            self._prefetch_row(node, "completion", "completed", number)
        self._issued = [i for i in self._issued if i[2] >= self._step]
        if prefilling or self._step % 5:
            return
        moved = 0
        waiting = [n for n in self._nodes.values() if n.host and not n.device and not self._retired(n)]
        if waiting:
            node = max(waiting, key=lambda n: n.score)
            if self.rng.random() < 0.3:
                self._prefetch_row(node, "decision", self.rng.choice(PREFETCH_RESULTS[1:6]), 0)
            else:
                self._prefetches += 1
                node.device, node.prefetch = True, self._prefetches
                self._prefetch_row(node, "decision", "issued")
                self._issued.append((node.prefetch, node, self._step))
                moved = node.tokens * TOKEN_BYTES
        length_us = self.rng.uniform(4000, 16000)
        capacity = int(length_us * LINK_BYTES_PER_S / 1e6)
        self._emit["pcie_window"](self.clock.mono_ns - STEP_NS, length_us, capacity, min(moved, capacity), 0)

    def _score(self, node: Node, snapshot: int) -> None:
        node.score = 0.0 if self._retired(node) else round(self.rng.uniform(0.1, 2.0) * len(node.workflows or {0}), 4)
        tier = "both" if node.device and node.host else "device" if node.device else "host" if node.host else "none"
        self._emit["node_score"](
            node.id, node.parent, node.tokens, TIERS.index(tier), node.score, node.score * self._gamma, len(node.workflows),
            self._retired(node), node.access, node.hits, snapshot, 0, node.owner,
        )

    def _samples(self, started: int) -> None:
        running = sum(1 for f in self._flows if f.ended_at is None)
        mode = "mixed" if started and running > started else "prefill" if started else "decode" if running else "idle"
        self._emit["batch"](MODES.index(mode), running, started * 900 + running, STEP_NS / 1e3)
        if self._step % 10 == 0:
            self._occupancy(running)
        if self._step % 250 == 0:
            for node in list(self._nodes.values())[:400]:
                self._score(node, 1)
        if self._step % 1500 == 0:
            self._knob()
        if self._step % 3000 == 1:
            self._settings()

    def _occupancy(self, running: int) -> None:
        nodes = self._nodes.values()
        locked = sum(f.path[-1].tokens for f in self._flows if f.ended_at is None and f.path[-1].device)
        retired = sum(n.tokens for n in nodes if n.device and self._retired(n))
        active = sum(n.tokens for n in nodes if n.device) - retired - locked
        host_retired = sum(n.tokens for n in nodes if n.host and self._retired(n))
        host_used = sum(n.tokens for n in nodes if n.host) - host_retired
        self._emit["occupancy"](
            max(0, DEVICE_TOKENS - active - retired - locked), max(0, active), retired, locked,
            max(0, HOST_TOKENS - host_used - host_retired), host_used, host_retired,
            len(self._nodes), running, self.rng.randint(0, 3), sum(f.named for f in self._flows),
        )

    def _knob(self) -> None:
        old, self._gamma = self._gamma, round(self.rng.uniform(0.5, 0.95), 2)
        self._version += 1
        texts = (KNOBS["gamma"].name, f"{old:g}", f"{self._gamma:g}", "operator", "try another decay")
        ids = [self.writer.intern(Namespace.KNOB, text) for text in texts]
        self._emit["knob"](self._version, *ids[:4], SOURCES.index("manual"), ids[4], self._now, self._calls)

    def _settings(self) -> None:
        facts = {"page_size": PAGE_TOKENS, "device_tokens": DEVICE_TOKENS, "host_tokens": HOST_TOKENS, "knob.gamma": f"{self._gamma:g}"}
        for name, value in facts.items():
            self._emit["setting"](*(self.writer.intern(Namespace.KNOB, text) for text in (name, str(value))), self._now)
