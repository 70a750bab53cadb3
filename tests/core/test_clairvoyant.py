"""The clairvoyant order: furthest next read first."""

from pbkv.eviction.clairvoyant import Clairvoyant
from pbkv.identity import CallIdentity
from pbkv.knobs import KnobSet
from pbkv.reads import Reads
from pbkv.record import NodeRecord
from pbkv.state import CacheState
from pbkv.workflow import Workflow
from tests.core.fakes import Node, Notes, Scripted, record


class Script:
    """Next uses as told."""

    def __init__(self) -> None:
        self.at: dict[tuple[str, NodeRecord], float] = {}

    def next_use(self, workflow: Workflow, record: NodeRecord) -> float | None:
        return self.at.get((workflow.name, record))


def world() -> tuple[CacheState, Clairvoyant, Script, Notes]:
    future, notes = Script(), Notes()
    policy = Clairvoyant(notes.rekeyed, future)
    return CacheState(KnobSet(), Scripted(), policy, Reads(), notes), policy, future, notes


def call(state: CacheState, name: str, *path: NodeRecord) -> None:
    made, agent = state.begin_call(CallIdentity(name, "a"))
    state.touch(made, agent, path)
    state.end_call(made)


def test_furthest_first_and_never_before_all() -> None:
    state, policy, future, _ = world()
    soon, late, never = (record(Node(float(n))) for n in range(3))
    call(state, "w", soon, late, never)
    future.at = {("w", soon): 10.0, ("w", late): 90.0}
    assert sorted((soon, late, never), key=policy.key) == [never, late, soon]


def test_the_earliest_of_all_workflows_counts_and_queued_calls_are_certain() -> None:
    state, policy, future, _ = world()
    shared, own, queued = (record(Node(float(n))) for n in range(3))
    call(state, "w", shared, own, queued)
    call(state, "v", shared)
    future.at = {("w", shared): 90.0, ("v", shared): 5.0, ("w", own): 10.0}
    queued.holds = {4: None}
    assert sorted((shared, own, queued), key=policy.key) == [own, shared, queued]


def test_unattributed_nodes_are_not_dead() -> None:
    _, policy, _, _ = world()
    dead, unknown = record(Node(9.0)), record(Node(1.0))
    unknown.anonymous = True
    assert policy.key(dead) < policy.key(unknown)


def test_each_call_lets_all_nodes_of_its_workflow_be_placed_anew() -> None:
    state, _, _, notes = world()
    first, second = record(), record()
    call(state, "w", first)
    call(state, "v", second)
    notes.falls.clear()
    call(state, "w")
    assert first in notes.falls
    assert second not in notes.falls
