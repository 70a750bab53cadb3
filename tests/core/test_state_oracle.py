"""CacheState against an oracle that recomputes Eq. 1 and Eq. 2 from scratch after every step."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pbkv.eviction.base import Policy
from pbkv.eviction.first_use import FirstUse
from pbkv.eviction.he import He
from pbkv.eviction.lae import Lae
from pbkv.eviction.lru import Lru
from pbkv.eviction.session_lae import SessionLae
from pbkv.identity import CallIdentity
from pbkv.knobs import KnobSet
from pbkv.predictor.base import Prediction
from pbkv.reads import Reads
from pbkv.record import SCORE_ONE, NodeRecord
from pbkv.state import CacheState
from pbkv.workflow import Workflow
from tests.core.fakes import Node, Notes, Scripted, record

MAX_WORKFLOWS, MAX_CALLS = 4, 6
NAMES = [f"w{n}" for n in range(6)]
AGENTS = ["", "planner", "coder", "critic"]
#: Orders by what a record says of itself, under the scores of `he`.
ORDERS: list[Policy] = [Lru(), Lae(), SessionLae(), He(), FirstUse(Reads())]


@dataclass
class OracleWorkflow:
    """What the oracle knows of one live workflow; `touched[c]` = A_w(c)."""

    made: Workflow
    prediction: Prediction
    last_event: int = 0
    last_call: float = 0.0
    running: int = 0
    ended: str | None = None
    touched: dict[NodeRecord, set[int]] = field(default_factory=dict)


class TreeNode(Node):
    """A node of the oracle's own tree."""

    def __init__(self, clock: float, parent: "TreeNode | None") -> None:
        super().__init__(clock, parent)
        self.children: list[TreeNode] = []
        self.record = record(self)
        self.touched = False
        self.anonymous = False
        if parent is not None:
            parent.children.append(self)

    def path(self) -> "list[TreeNode]":
        above = self.parent.path() if isinstance(self.parent, TreeNode) else []
        return [*above, self]


def reuse(prediction: Prediction, agents: set[int], gamma: float, k: int) -> int:
    """Eq. 2 for one workflow, in units of 1/SCORE_ONE, rounded per agent."""
    return sum(round(_visits(prediction, agent, gamma, k) * SCORE_ONE) for agent in agents)


def _visits(prediction: Prediction, agent: int, gamma: float, k: int) -> float:
    total, weight = 0.0, 1.0
    for step in prediction.visits[:k]:
        total += weight * step.get(agent, 0.0)
        weight *= gamma
    return total


class StateMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1000))
    def start(self, seed: int) -> None:
        self.notes, self.predictor, self.knobs = Notes(), Scripted(seed), KnobSet()
        self.knobs.values["retire_idle_s"] = 10.0
        self.state = CacheState(self.knobs, self.predictor, He(), Reads(), self.notes, max_workflows=MAX_WORKFLOWS)
        self.clock, self.events = 0.0, 0
        self.live: dict[str, OracleWorkflow] = {}
        self.calls: list[tuple[Workflow, int]] = []
        self.nodes: list[TreeNode] = []
        self.bounds: dict[tuple[str, NodeRecord], tuple[float, ...]] = {}
        self.expect_retired: list[tuple[str, str]] = []
        self.retired: dict[NodeRecord, bool] = {}
        for _ in range(3):
            self._new_node(None)

    # ---- oracle ------------------------------------------------------------------------------------------------------------

    def _tick_clock(self) -> float:
        self.clock += 1
        return self.clock

    def _new_node(self, parent: TreeNode | None) -> TreeNode:
        node = TreeNode(self._tick_clock(), parent)
        self.nodes.append(node)
        return node

    def _pick(self, number: int) -> TreeNode:
        return self.nodes[number % len(self.nodes)]

    def _of(self, workflow: Workflow) -> OracleWorkflow | None:
        return next((w for w in self.live.values() if w.made is workflow), None)

    def _retire(self, name: str, reason: str) -> None:
        self.expect_retired.append((name, reason))
        del self.live[name]

    def _event(self, workflow: OracleWorkflow) -> None:
        self.events += 1
        workflow.last_event, workflow.last_call = self.events, self.state.now

    # ---- rules -------------------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), agent=st.sampled_from(AGENTS), final=st.booleans())
    def begin(self, name: str, agent: str, final: bool) -> None:
        if len(self.calls) >= MAX_CALLS:
            return
        if name not in self.live:
            while len(self.live) >= MAX_WORKFLOWS:
                idle = [(w.last_event, n) for n, w in self.live.items() if not w.running]
                if not idle:
                    break
                self._retire(min(idle)[1], "idle")
        made, agent_id = self.state.begin_call(CallIdentity(name, agent, final))
        known = self.live.get(name)
        if known is None:
            known = self.live[name] = OracleWorkflow(made, Prediction())
            assert self.notes.starts[-1] is made
        assert known.made is made
        known.prediction = Prediction() if final else self.predictor.last
        known.running += 1
        self._event(known)
        self.calls.append((made, agent_id))
        assert self.notes.predictions[-1] is made
        assert made.path[-1] == agent_id == self.state.agents[agent or "(unnamed)"]

    @rule(call=st.integers(0, 50), node=st.integers(0, 500))
    @precondition(lambda self: self.calls)
    def touch(self, call: int, node: int) -> None:
        workflow, agent = self.calls[call % len(self.calls)]
        path = self._pick(node).path()
        for part in path:
            part.last_access_time = self._tick_clock()
            part.touched = True
        self.state.touch(workflow, agent, [p.record for p in path])
        known = self._of(workflow)
        assert known is not None
        for part in path:
            known.touched.setdefault(part.record, set()).add(agent)
            assert part.record.last_workflow == workflow.name_id

    @rule(node=st.integers(0, 500))
    def touch_anonymous(self, node: int) -> None:
        path = self._pick(node).path()
        self.state.touch_anonymous([p.record for p in path])
        for part in path:
            part.anonymous = True

    @rule(parent=st.integers(0, 500), root=st.booleans())
    def grow(self, parent: int, root: bool) -> None:
        if len(self.nodes) < 24:
            self._new_node(None if root or not self.nodes else self._pick(parent))

    @rule(node=st.integers(0, 500))
    @precondition(lambda self: self.nodes)
    def split(self, node: int) -> None:
        suffix = self._pick(node)
        above = suffix.parent
        assert above is None or isinstance(above, TreeNode)
        prefix = self._new_node(above)
        prefix.last_access_time = suffix.last_access_time
        if above is not None:
            above.children.remove(suffix)
        suffix.parent = prefix
        prefix.children.append(suffix)
        prefix.touched, prefix.anonymous = suffix.touched, suffix.anonymous
        self.state.split(prefix.record, suffix.record)
        for known in self.live.values():
            if suffix.record in known.touched:
                known.touched[prefix.record] = set(known.touched[suffix.record])

    @rule(node=st.integers(0, 500))
    @precondition(lambda self: len(self.nodes) > 1)
    def forget_leaf(self, node: int) -> None:
        leaf = self._pick(node)
        while leaf.children:
            leaf = leaf.children[0]
        self.nodes.remove(leaf)
        if isinstance(leaf.parent, TreeNode):
            leaf.parent.children.remove(leaf)
        self.state.forget(leaf.record)
        assert not leaf.record.live
        for known in self.live.values():
            known.touched.pop(leaf.record, None)
        self.bounds = {k: v for k, v in self.bounds.items() if k[1] is not leaf.record}

    @rule(call=st.integers(0, 50), final=st.booleans())
    @precondition(lambda self: self.calls)
    def end(self, call: int, final: bool) -> None:
        workflow, _ = self.calls.pop(call % len(self.calls))
        known = self._of(workflow)
        assert known is not None, "a workflow with a running call must not retire"
        known.running -= 1
        self._event(known)
        if final:
            known.ended = known.ended or "final"
        if known.ended and not known.running:
            self._retire(workflow.name, known.ended)
        self.state.end_call(workflow, final=final)

    @rule(name=st.sampled_from([*NAMES, "never seen"]))
    def close(self, name: str) -> None:
        known = self.live.get(name)
        if known is not None:
            known.ended = "closed"
            if not known.running:
                self._retire(name, "closed")
        assert self.state.close(name) == (known is not None)

    @rule(seconds=st.sampled_from([-5.0, 0.0, 1.0, 4.0, 9.0, 11.0]))
    def tick(self, seconds: float) -> None:
        now = max(self.state.now, self.state.now + seconds)
        for name, known in sorted(self.live.items(), key=lambda item: item[1].last_event):
            if not known.running and now - known.last_call >= 10.0:
                self._retire(name, "idle")
        self.state.tick(self.state.now + seconds)
        assert self.state.now == now

    @rule(gamma=st.sampled_from([0.0, 0.3, 0.8, 1.0]), k=st.integers(1, 8))
    def turn_knobs(self, gamma: float, k: int) -> None:
        self.knobs.apply({"gamma": gamma, "k": k}, if_version=self.knobs.version, step=0, actor="test")
        self.state.rescore()

    # ---- what must hold after every step -----------------------------------------------------------------------------------

    @invariant()
    def scores_are_the_formulas(self) -> None:
        gamma, k = self.knobs.number("gamma"), int(self.knobs["k"])
        for node in self.nodes:
            by = {w.made: w.touched[node.record] for w in self.live.values() if node.record in w.touched}
            assert {w: set(a.agents) for w, a in node.record.live.items()} == by
            assert all(node.record in a.records and a in w.accesses for w, a in node.record.live.items())
            predictions = {w.made: w.prediction for w in self.live.values()}
            assert node.record.score == sum(reuse(predictions[w], agents, gamma, k) for w, agents in by.items())
            assert node.record.value == sum(reuse(predictions[w], agents, 1.0, 1) for w, agents in by.items())
            assert node.record.touched == node.touched
            assert node.record.anonymous == node.anonymous
            assert node.record.retired == (node.touched and not by and not node.anonymous)

    @invariant()
    def ancestors_never_score_below_descendants(self) -> None:
        for node in self.nodes:
            for child in node.children:
                assert node.record.score >= child.record.score
                assert node.record.value >= child.record.value
                assert not node.record.retired or child.record.retired or not child.touched

    @invariant()
    def every_fall_of_a_key_was_announced(self) -> None:
        fallen, changed = set(self.notes.falls), set(self.notes.changes)
        for node in self.nodes:
            for policy in ORDERS:
                now = policy.key(node.record)
                before = self.bounds.get((policy.name, node.record))
                assert before is None or now >= before or node.record in fallen, f"{policy.name}: {before} fell to {now} in silence"
                self.bounds[policy.name, node.record] = now
            value = (-node.record.value,)
            before = self.bounds.get(("prefetch", node.record))
            assert before is None or value >= before or node.record in changed
            self.bounds["prefetch", node.record] = value
        self.notes.falls.clear()
        self.notes.changes.clear()

    @invariant()
    def workflows_are_the_ones_expected(self) -> None:
        assert {n: w.made for n, w in self.live.items()} == dict(self.state.live)
        assert [(w.name, r) for w, r, _ in self.notes.retirements] == self.expect_retired
        gone = {r for _, _, records in self.notes.retirements for r in records}
        now = {n.record: n.record.retired for n in self.nodes}
        assert gone == {r for r, retired in now.items() if retired and self.retired.get(r) is False}
        self.retired = now
        assert not any(w.records for w, _, _ in self.notes.retirements)
        for known in self.live.values():
            assert set(known.made.records) == set(known.touched)
            assert known.made.running == known.running
        self.notes.retirements.clear()
        self.expect_retired.clear()

    @invariant()
    def tables_are_bounded(self) -> None:
        # Only running workflows may exceed the limit, and those that exceeded it stay until the next one starts.
        assert len(self.state.live) <= max(MAX_WORKFLOWS, MAX_CALLS)
        assert len(self.state.agents) <= len(AGENTS)


# Without shrinking: a failure already prints its steps, and shrinking sixty of them takes minutes.
StateMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
TestStateMachine = StateMachine.TestCase


def random_step(machine: StateMachine, rng: random.Random) -> None:
    """One rule, weighted like a server's life: many touches, splits and ends of every kind."""
    number = rng.randrange(500)
    rules: list[tuple[int, Callable[[], None]]] = [
        (6, lambda: machine.begin(name=rng.choice(NAMES), agent=rng.choice(AGENTS), final=rng.random() < 0.2)),
        (10, lambda: machine.touch(call=number, node=rng.randrange(500)) if machine.calls else None),
        (1, lambda: machine.touch_anonymous(node=number)),
        (3, lambda: machine.grow(parent=number, root=rng.random() < 0.3)),
        (2, lambda: machine.split(node=number) if len(machine.nodes) < 30 else None),
        (2, lambda: machine.forget_leaf(node=number) if len(machine.nodes) > 8 else None),
        (6, lambda: machine.end(call=number, final=rng.random() < 0.2) if machine.calls else None),
        (1, lambda: machine.close(name=rng.choice(NAMES))),
        (2, lambda: machine.tick(seconds=rng.choice((0.0, 1.0, 4.0, 9.0)))),
        (1, lambda: machine.turn_knobs(gamma=rng.random(), k=rng.randint(1, 8))),
    ]
    weights, moves = zip(*rules, strict=True)
    rng.choices(moves, weights)[0]()


@pytest.mark.parametrize("seed", range(8))
def test_long_lives(seed: int) -> None:
    """The same rules and checks in lives long enough for workflows to touch much and then end."""
    machine, rng = StateMachine(), random.Random(seed)
    machine.start(seed=seed)
    ended_with_nodes = 0
    for _ in range(600):
        random_step(machine, rng)
        ended_with_nodes += sum(bool(gone) for _, _, gone in machine.notes.retirements)
        machine.scores_are_the_formulas()
        machine.ancestors_never_score_below_descendants()
        machine.every_fall_of_a_key_was_announced()
        machine.workflows_are_the_ones_expected()
        machine.tables_are_bounded()
    assert ended_with_nodes > 2, "a life in which little ended shows little"
