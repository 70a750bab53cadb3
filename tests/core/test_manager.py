"""The cache manager around a tree on paper: every policy's queues drain in the order of a full sort, whatever happened before."""

import random
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pbkv import manager as manager_module
from pbkv.events.wire import decode
from pbkv.events.writer import EventWriter
from pbkv.eviction.catalog import POLICIES
from pbkv.eviction.queue import LazyQueue
from pbkv.identity import CallIdentity
from pbkv.knobs import KnobSet
from pbkv.manager import CacheManager
from pbkv.predictor.markov import OnlineMarkov
from pbkv.prefetch.planner import COOLDOWN_STEPS
from pbkv.record import NodeRecord
from pbkv.telemetry import TIERS, Telemetry
from tests.core.fakes import Node, record
from tests.support.stream import Recorder

NAMES, AGENTS = [f"w{n}" for n in range(5)], ["plan", "code", "test"]


class Tree:
    """Nodes with a tier each; leaves are candidates."""

    def __init__(self) -> None:
        self.tier: dict[NodeRecord, str] = {}

    def tier_of(self, record: NodeRecord) -> str:
        return self.tier.get(record, "none")

    def parent_of(self, record: NodeRecord) -> int:
        return 0

    def tokens_of(self, record: NodeRecord) -> tuple[int, int]:
        tier = self.tier_of(record)
        return record.tokens * (tier == "device"), record.tokens * (tier == "host")

    def is_device_leaf(self, record: NodeRecord) -> bool:
        return self.tier_of(record) == "device" and not any(self.tier_of(c.record) == "device" for c in record.node.children)  # type: ignore[attr-defined]


class Leafy(Node):
    """A node that knows its children."""

    def __init__(self, clock: float, parent: "Leafy | None" = None) -> None:
        super().__init__(clock, parent)
        self.children: list[Leafy] = []
        self.record = record(self)
        if parent is not None:
            parent.children.append(self)

    def path(self) -> list[NodeRecord]:
        above = self.parent.path() if isinstance(self.parent, Leafy) else []
        return [*above, self.record]


def drained(queue: LazyQueue[NodeRecord]) -> list[NodeRecord]:
    """The order a copy drains in; looking at the queue itself would repair it."""
    copy = LazyQueue[NodeRecord](queue._key, queue._ident)
    copy._heap, copy._alive = list(queue._heap), dict(queue._alive)
    order: list[NodeRecord] = []
    while (least := copy.peek()) is not None:
        order.append(least)
        copy.discard(least)
    return order


class Life(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(sorted(POLICIES)))
    def start(self, policy: str) -> None:
        self.tree, self.knobs = Tree(), KnobSet()
        self.knobs.values.update(policy=policy, retire_idle_s=20.0)
        self.manager = CacheManager(self.tree, self.knobs, OnlineMarkov(), bytes_per_token=10)
        self.clock, self.arrivals = 0.0, 0
        self.nodes: list[Leafy] = []
        self.calls: list[tuple[Any, int, int, list[NodeRecord]]] = []
        self.queued: list[int] = []

    def _node(self, parent: Leafy | None) -> Leafy:
        self.clock += 1
        node = Leafy(self.clock, parent)
        self.nodes.append(node)
        self.tree.tier[node.record] = "device"
        while parent is not None:  # what a call reads comes back to the device
            self.tree.tier[parent.record] = "device"
            for queue in (self.manager.device, self.manager.host, self.manager.prefetch.queue):
                queue.discard(parent.record)
            parent = parent.parent  # type: ignore[assignment]
        self.manager.device.add(node.record)
        return node

    @rule(name=st.sampled_from(NAMES), agent=st.sampled_from(AGENTS), at=st.integers(0, 200), new=st.integers(0, 2), final=st.booleans())
    def call(self, name: str, agent: str, at: int, new: int, final: bool) -> None:
        if len(self.calls) > 5 or len(self.nodes) > 40:
            return
        node = self.nodes[at % len(self.nodes)] if self.nodes and at % 5 else None
        for _ in range(new):
            node = self._node(node)
        path = node.path() if node else []
        for part in path:
            self.clock += 1
            part.node.last_access_time = self.clock
        workflow, number = self.manager.state.begin_call(CallIdentity(name, agent, final))
        self.manager.state.touch(workflow, number, path)
        self.calls.append((workflow, number, workflow.step, path))

    @rule(n=st.integers(0, 50), grow=st.booleans(), final=st.booleans())
    @precondition(lambda self: self.calls)
    def end(self, n: int, grow: bool, final: bool) -> None:
        workflow, agent, step, path = self.calls.pop(n % len(self.calls))
        if grow and path and path[-1].node in self.nodes:
            node = self._node(path[-1].node)  # type: ignore[arg-type]
            self.manager.state.touch(workflow, agent, node.path(), step=step, output=True)
        self.manager.state.end_call(workflow, final=final)

    @rule(at=st.integers(0, 200))
    @precondition(lambda self: self.nodes)
    def hold(self, at: int) -> None:
        self.arrivals += 1
        self.manager.hold(self.arrivals, self.nodes[at % len(self.nodes)].path())
        self.queued.append(self.arrivals)

    @rule(n=st.integers(0, 50))
    @precondition(lambda self: self.queued)
    def release(self, n: int) -> None:
        self.manager.release(self.queued.pop(n % len(self.queued)))

    @rule(at=st.integers(0, 200))
    @precondition(lambda self: 0 < len(self.nodes) < 40)
    def split(self, at: int) -> None:
        suffix = self.nodes[at % len(self.nodes)]
        above = suffix.parent
        prefix = Leafy(suffix.last_access_time, above)  # type: ignore[arg-type]
        prefix.record.tokens, suffix.record.tokens = 8, 24
        if isinstance(above, Leafy):
            above.children.remove(suffix)
        suffix.parent, prefix.children = prefix, [suffix]
        self.nodes.append(prefix)
        self.tree.tier[prefix.record] = self.tree.tier[suffix.record]
        self.manager.split(prefix.record, suffix.record)

    @rule()
    def evict(self) -> None:
        victim = self.manager.next_device_victim()
        if victim is not None:
            self.tree.tier[victim] = "host"
            node: Leafy = victim.node  # type: ignore[assignment]
            if not node.children:
                self.manager.host.add(victim)
            above = node.parent
            if isinstance(above, Leafy) and not any(self.tree.tier[c.record] == "device" for c in above.children):
                self.manager.device.add(above.record)
            self.manager.end_device_walk()

    @rule()
    def drop(self) -> None:
        victim = self.manager.next_host_victim()
        if victim is not None:
            self._remove(victim.node)  # type: ignore[arg-type]

    def _remove(self, node: Leafy) -> None:
        self.nodes.remove(node)
        if isinstance(node.parent, Leafy):
            node.parent.children.remove(node)
            if not node.parent.children and self.tree.tier[node.parent.record] == "host":
                self.manager.host.add(node.parent.record)
        self.manager.removed(node.record)

    @rule(name=st.sampled_from(NAMES))
    def close(self, name: str) -> None:
        self.manager.state.close(name)

    @rule(seconds=st.sampled_from([1.0, 15.0, 25.0]))
    def tick(self, seconds: float) -> None:
        self.manager.state.tick(self.manager.state.now + seconds)

    @rule(
        policy=st.sampled_from(sorted(POLICIES)), host=st.sampled_from(["recency", "score"]), gamma=st.floats(0, 1), k=st.integers(1, 8),
        prefetch=st.sampled_from(["off", "conservative"]),
    )
    def turn_knobs(self, **changes: Any) -> None:
        changes["host_order"] = changes.pop("host")
        self.knobs.apply(changes, if_version=self.knobs.version, step=0, actor="test")
        self.manager.knobs_changed(set(changes))

    @rule()
    def flush(self) -> None:
        if self.clock % 7:  # seldom, or nothing ever grows
            return
        self.nodes.clear()
        self.tree.tier.clear()
        self.manager.flushed()

    @invariant()
    def queues_drain_in_the_order_of_a_full_sort(self) -> None:
        for queue in (self.manager.device, self.manager.host, self.manager.prefetch.queue):
            expected = sorted(queue._alive.values(), key=lambda r: (queue._key(r), r.node_id))
            assert drained(queue) == expected, "a fall of a key was not announced"

    @invariant()
    def holds_are_those_of_queued_calls(self) -> None:
        held = {number for n in self.nodes for number in (n.record.holds or ())}
        assert held <= set(self.queued)

    @invariant()
    def nothing_is_scored_when_nobody_reads_it(self) -> None:
        wanted = self.manager.policy.by_score or self.knobs["prefetch"] != "off"
        assert self.manager.state.scoring == wanted


Life.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
TestLife = Life.TestCase


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_long_lives(policy: str) -> None:
    """The same rules in lives long enough for shared nodes, many workflows and long queues."""
    life, rng = Life(), random.Random(policy)
    life.start(policy=policy)
    for _ in range(1500):
        roll, n = rng.random(), rng.randrange(200)
        if roll < 0.45:
            life.call(name=rng.choice(NAMES), agent=rng.choice(AGENTS), at=n, new=rng.randrange(3), final=rng.random() < 0.1)
        elif roll < 0.70 and life.calls:
            life.end(n=n, grow=rng.random() < 0.6, final=rng.random() < 0.1)
        elif roll < 0.78:
            life.evict()
        elif roll < 0.84:
            life.drop()
        elif roll < 0.88 and life.nodes:
            life.hold(at=n)
        elif roll < 0.92 and life.queued:
            life.release(n=n)
        elif roll < 0.95 and 0 < len(life.nodes) < 40:
            life.split(at=n)
        elif roll < 0.97:
            life.close(name=rng.choice(NAMES))
        life.queues_drain_in_the_order_of_a_full_sort()
        life.holds_are_those_of_queued_calls()


def manager(policy: str = "first_use") -> tuple[CacheManager, Tree]:
    tree, knobs = Tree(), KnobSet()
    knobs.values["policy"] = policy
    return CacheManager(tree, knobs, OnlineMarkov(), bytes_per_token=10), tree


def test_a_hold_reaches_both_parts_of_a_split_and_ends_for_both() -> None:
    made, _ = manager()
    node = Leafy(1.0)
    made.hold(3, [node.record])
    prefix = Leafy(1.0)
    made.split(prefix.record, node.record)
    assert list(prefix.record.holds or ()) == [3]
    made.release(3)
    assert not prefix.record.holds
    assert not node.record.holds


def test_held_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "MAX_HELD", 2)
    made, _ = manager()
    node = Leafy(1.0)
    for n in range(5):
        made.hold(n, [node.record])
    assert list(node.record.holds or ()) == [0, 1]
    made.release(4)  # was never held


def test_a_walk_that_admits_only_some_ends_at_the_first_it_does_not() -> None:
    made, tree = manager("lru")
    nodes = [Leafy(float(n)) for n in range(4)]
    for n in nodes:
        tree.tier[n.record] = "device"
        made.device.add(n.record)
    made.only = lambda r: r is nodes[0].record
    assert made.next_device_victim() is nodes[0].record
    assert made.next_device_victim() is None
    made.only = None
    assert made.next_device_victim() is nodes[1].record


def test_a_victim_that_stayed_is_a_candidate_again_and_one_that_moved_may_be_prefetched() -> None:
    made, tree = manager("he")
    stays, moves = Leafy(1.0), Leafy(2.0)
    for n in (stays, moves):
        workflow, agent = made.state.begin_call(CallIdentity("w", "a"))
        made.state.touch(workflow, agent, [n.record])
        tree.tier[n.record] = "device"
        made.device.add(n.record)
    assert {made.next_device_victim(), made.next_device_victim()} == {stays.record, moves.record}
    tree.tier[moves.record] = "host"
    made.end_device_walk()
    assert stays.record in made.device
    assert moves.record not in made.device
    assert moves.record in made.prefetch.queue
    assert stays.record not in made.prefetch.queue


def test_only_what_left_the_device_counts_as_evicted() -> None:
    """A write back that found no room leaves its node where it is: no count, no event, no wait before it may be loaded again."""
    made, tree = manager("he")
    sink = Recorder()
    made.observe_with(Telemetry(EventWriter("test", sink, epoch=1), tree.tier_of, tree.parent_of, made.state.agent_names))
    stays, moves, goes = (Leafy(float(n)) for n in (1, 2, 3))
    for n in (stays, moves, goes):
        tree.tier[n.record] = "device"
        made.device.add(n.record)
    for n, tier in ((stays, "device"), (moves, "host"), (goes, "none")):
        assert made.next_device_victim() is n.record
        tree.tier[n.record] = tier
    assert made.counts["evicted_nodes"] == 1, "the last one's fate is not known before the walk goes on"
    made.end_device_walk()
    assert (made.counts["evicted_nodes"], made.counts["evicted_tokens"]) == (2, moves.record.tokens + goes.record.tokens)
    assert made.telemetry is not None
    made.telemetry.end_step(1)
    rows = [row for p in sink.payloads for row in decode(p).tables.get("eviction", ())]
    assert [(r["node"], r["to_tier"]) for r in rows] == [(moves.record.node_id, TIERS["host"]), (goes.record.node_id, TIERS["none"])]
    assert stays.record.evicted_step < -COOLDOWN_STEPS
