"""Keys of the eviction orders, and the reason given for a victim."""

import itertools

import pytest

from pbkv.eviction.base import Policy
from pbkv.eviction.catalog import POLICIES, decision_of, make_policy
from pbkv.knobs import KNOBS
from pbkv.reads import Reads
from pbkv.record import PROMPT, SCORE_ONE, Access, NodeRecord
from tests.core.fakes import Node, record
from tests.core.fakes import workflow as live_workflow


def policy_named(name: str) -> Policy:
    return make_policy(name, Reads(), lambda r: None)


def make(*, retired: bool = False, score: float = 0.0, access: float = 1.0, live: int = 1) -> NodeRecord:
    made = record(Node(access))
    made.touched = True
    if not retired:
        for n in range(live):
            made.live[live_workflow(f"w{n}")] = Access(0, PROMPT, 0)
    made.score = round(score * SCORE_ONE)
    return made


def order(policy: str, records: dict[str, NodeRecord]) -> list[str]:
    key = policy_named(policy).key
    return sorted(records, key=lambda name: key(records[name]))


CASES = {
    "old live useful": make(score=2.0, access=1.0),
    "old live useless": make(score=0.0, access=2.0),
    "new live useless": make(score=0.0, access=9.0),
    "old retired": make(retired=True, access=3.0),
    "new retired": make(retired=True, access=10.0),
}


def test_lru_looks_at_recency_alone() -> None:
    assert order("lru", CASES) == ["old live useful", "old live useless", "old retired", "new live useless", "new retired"]


def test_lae_puts_retired_first() -> None:
    assert order("lae", CASES) == ["old retired", "new retired", "old live useful", "old live useless", "new live useless"]


def test_he_puts_retired_first_and_then_the_least_score() -> None:
    assert order("he", CASES) == ["old retired", "new retired", "old live useless", "new live useless", "old live useful"]


def test_session_lae_puts_few_references_before_many() -> None:
    cases = {**CASES, "wanted by two": make(live=2, access=0.5)}
    assert order("session_lae", cases)[:2] == ["old retired", "new retired"]
    assert order("session_lae", cases)[-1] == "wanted by two"


def test_session_lae_counts_unattributed_nodes_as_unreferenced() -> None:
    anonymous = make(retired=True, access=1.0)
    anonymous.anonymous = True
    assert order("session_lae", {**CASES, "anonymous": anonymous})[0] == "anonymous"


def test_first_use_evicts_what_nobody_will_read_with_the_retired_ones() -> None:
    assert order("first_use", CASES) == ["old live useless", "old retired", "new live useless", "new retired", "old live useful"]


def test_first_use_keeps_the_path_of_a_queued_call_and_the_head_of_the_queue_longest() -> None:
    held = {n: make(score=0.0, access=float(n)) for n in (1, 2, 3)}
    for n, r in held.items():
        r.holds = {n: None}
    both = make(access=0.1)
    both.holds = {1: None, 3: None}
    names = {"first in queue": held[1], "second": held[2], "third": held[3], "read by first and third": both, **CASES}
    assert order("first_use", names)[-4:] == ["third", "second", "read by first and third", "first in queue"]


def test_a_retired_record_is_never_ordered_by_a_stale_score() -> None:
    stale = make(retired=True, score=5.0, access=1.0)
    fresh = make(retired=True, score=0.0, access=2.0)
    he = policy_named("he")
    assert he.key(stale) < he.key(fresh)


@pytest.mark.parametrize("policy", ["lae", "he", "first_use"])
def test_unattributed_nodes_are_not_retired(policy: str) -> None:
    anonymous = make(retired=True, access=1.0)
    anonymous.anonymous = True
    assert not anonymous.retired
    assert order(policy, {**CASES, "anonymous": anonymous}).index("anonymous") > 1
    assert not policy_named(policy).is_dead(anonymous)


def test_the_knob_offers_every_policy() -> None:
    assert set(POLICIES) == set(KNOBS["policy"].choices)
    assert all(kind.name == name and kind.meaning for name, kind in POLICIES.items())


@pytest.mark.parametrize("policy", POLICIES)
def test_keys_are_comparable_and_finite(policy: str) -> None:
    keys = [policy_named(policy).key(r) for r in CASES.values()]
    for a, b in itertools.combinations(keys, 2):
        assert (a < b) != (b < a)


@pytest.mark.parametrize(
    ("policy", "victim", "second", "expected"),
    [
        ("lru", make(retired=True), None, "tie"),
        ("kvflow", make(retired=True), None, "scored"),
        ("lae", make(retired=True), make(), "retired"),
        ("lae", make(), make(score=1), "tie"),
        ("session_lae", make(retired=True), make(), "retired"),
        ("he", make(retired=True), make(), "retired"),
        ("he", make(retired=True), None, "retired"),
        ("he", make(score=1), make(score=2), "scored"),
        ("he", make(score=1), make(score=1), "tie"),
        ("he", make(score=1), None, "scored"),
        ("first_use", make(score=0.001), make(score=0.002), "tie"),
        ("first_use", make(score=0.5), make(score=0.6), "scored"),
    ],
)
def test_decision(policy: str, victim: NodeRecord, second: NodeRecord | None, expected: str) -> None:
    assert decision_of(policy_named(policy), victim, second) == expected
