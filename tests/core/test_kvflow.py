"""KVFlow as in its paper: steps to execution of a static graph, fixed prefixes before dynamic suffixes, the nearest use kept longest."""

from pbkv.eviction.kvflow import NEVER, KvFlow, KvFlowAll, steps_to_execution
from pbkv.identity import CallIdentity
from pbkv.knobs import K_MAX, KnobSet
from pbkv.predictor.base import Moment, Prediction
from pbkv.reads import Reads
from pbkv.record import NodeRecord
from pbkv.state import CacheState
from tests.core.fakes import Node, Notes, Scripted, record, workflow

CHAIN = "abcd"


class Chain(Scripted):
    """A static chain: a, b, c, d, END."""

    def predict(self, moment: Moment) -> Prediction:
        ahead = range(moment.path[-1] + 1, len(CHAIN))
        visits = [{a: 1.0} for a in ahead] + [{} for _ in range(K_MAX - len(ahead))]
        return Prediction(tuple(visits), tuple(float(n == len(ahead)) for n in range(K_MAX)))


class World:
    """A state whose policy is KVFlow, with an own prefix per agent that two ended workflows have read."""

    def __init__(self, kind: type[KvFlow] = KvFlow) -> None:
        self.notes = Notes()
        self.policy = kind(self.notes.rekeyed)
        self.state = CacheState(KnobSet(), Chain(), self.policy, Reads(), self.notes)
        for agent in CHAIN:
            self.state.agent_id(agent)
        self.prefix = {agent: record(Node(float(n))) for n, agent in enumerate(CHAIN)}
        for name in ("first", "second"):
            for agent in CHAIN:
                self.call(name, agent)
            self.state.close(name)

    def call(self, name: str, agent: str, *own: NodeRecord) -> None:
        made, number = self.state.begin_call(CallIdentity(name, agent))
        self.state.touch(made, number, [self.prefix[agent], *own])
        self.state.end_call(made)

    def order(self, records: dict[str, NodeRecord]) -> str:
        return "".join(sorted(records, key=lambda n: self.policy.key(records[n])))


def test_steps_to_execution_are_the_first_step_an_agent_is_likeliest() -> None:
    w = workflow("w")
    w.prediction = Prediction(({0: 0.6, 1: 0.3}, {1: 0.5, 0: 0.4}, {0: 0.2}, {}), (0.1, 0.0, 0.7, 0.1))
    assert steps_to_execution(w) == {0: 1, 1: 2}
    w.prediction = Prediction()
    assert steps_to_execution(w) == {}


def test_prefixes_go_in_descending_steps_to_execution() -> None:
    world = World()
    world.call("w", "a")
    assert [world.policy.ste(world.prefix[a]) for a in CHAIN] == [NEVER, 1, 2, 3]
    assert world.order(world.prefix) == "adcb"
    world.call("w", "b")
    assert world.order(world.prefix) == "abdc"


def test_the_nearest_of_all_workflows_counts() -> None:
    world = World()
    world.call("w", "a")
    world.call("v", "c")
    assert [world.policy.ste(world.prefix[a]) for a in CHAIN] == [NEVER, 1, 2, 1]
    world.state.close("v")
    assert [world.policy.ste(world.prefix[a]) for a in CHAIN] == [NEVER, 1, 2, 3]


def test_dynamic_suffixes_go_first_by_recency_alone() -> None:
    world = World()
    old, new = record(Node(1.0)), record(Node(2.0))
    world.call("w", "a", new)
    world.call("w", "b", old)
    assert world.order({"o": old, "n": new, "p": world.prefix["a"]}) == "onp"


def test_the_generous_variant_ranks_private_context_too() -> None:
    world = World(KvFlowAll)
    useful, useless = record(Node(1.0)), record(Node(2.0))
    world.call("w", "a", useless)
    world.call("w", "b")
    assert world.policy.key(useless)[1] == 0, "a does not come back in a chain"
    made, number = world.state.begin_call(CallIdentity("v", "a"))
    world.state.touch(made, number, [useful])
    world.state.touch(made, world.state.agent_id("c"), [useful])  # as if c had read it: two steps ahead
    assert world.order({"a": useful, "x": useless}) == "xa"
    world.state.close("v")


def test_every_fall_is_announced() -> None:
    """Whoever's steps to execution grow falls in the order, so the queue must hear of it."""
    world = World()
    world.call("w", "a")
    before = {a: world.policy.key(r) for a, r in world.prefix.items()}
    world.notes.falls.clear()
    world.call("w", "b")
    fell = {a for a, r in world.prefix.items() if world.policy.key(r) < before[a]}
    assert fell == {"b"}
    assert {world.prefix[a] for a in fell} <= set(world.notes.falls)


def test_what_left_the_tree_is_forgotten_and_parts_inherit() -> None:
    world = World()
    world.call("w", "a")
    prefix = record(Node(9.0))
    world.state.split(prefix, world.prefix["b"])
    assert prefix.shared
    assert world.policy.ste(prefix) == 1
    for r in (prefix, *world.prefix.values()):
        world.state.forget(r)
    assert not world.policy._agents
    assert not any(world.policy._nodes.values())


def test_switching_to_it_knows_what_was_touched_before() -> None:
    world = World()
    world.state.use(KvFlow(world.notes.rekeyed))
    world.call("v", "a")
    assert world.prefix["a"].shared
