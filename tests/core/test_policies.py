"""Keys of the eviction orders, and the reason given for a victim."""

import itertools

import pytest

from pbkv.eviction import policies
from pbkv.knobs import KNOBS
from pbkv.record import SCORE_ONE, NodeRecord
from tests.core.fakes import Node, record
from tests.core.fakes import workflow as live_workflow


def make(*, retired: bool = False, score: float = 0.0, access: float = 1.0) -> NodeRecord:
    made = record(Node(access))
    made.touched = True
    if not retired:
        from pbkv.record import Access

        made.live[live_workflow("w")] = Access({0})
    made.score = round(score * SCORE_ONE)
    return made


def order(policy: str, records: dict[str, NodeRecord]) -> list[str]:
    return sorted(records, key=lambda name: policies.DEVICE[policy](records[name]))


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


def test_a_retired_record_is_never_ordered_by_a_stale_score() -> None:
    stale = make(retired=True, score=5.0, access=1.0)
    fresh = make(retired=True, score=0.0, access=2.0)
    assert policies.he(stale) < policies.he(fresh)


def test_unattributed_nodes_are_not_retired() -> None:
    anonymous = make(retired=True, access=1.0)
    anonymous.anonymous = True
    assert not anonymous.retired
    assert policies.he(anonymous) > policies.he(CASES["new retired"])


def test_every_choice_of_the_knob_has_both_orders() -> None:
    assert set(policies.DEVICE) == set(policies.HOST) == set(KNOBS["policy"].choices)


def test_the_host_tier_is_never_steered_by_score() -> None:
    useful, useless = make(score=9.0, access=1.0), make(score=0.0, access=2.0)
    for key in policies.HOST.values():
        assert key(useful) < key(useless)


@pytest.mark.parametrize("policy", policies.DEVICE)
def test_keys_are_comparable_and_finite(policy: str) -> None:
    keys = [policies.DEVICE[policy](r) for r in CASES.values()]
    for a, b in itertools.combinations(keys, 2):
        assert (a < b) != (b < a)


@pytest.mark.parametrize(
    ("policy", "victim", "second", "expected"),
    [
        ("lru", make(retired=True), None, "tie"),
        ("lae", make(retired=True), make(), "retired"),
        ("lae", make(), make(score=1), "tie"),
        ("he", make(retired=True), make(), "retired"),
        ("he", make(retired=True), None, "retired"),
        ("he", make(score=1), make(score=2), "scored"),
        ("he", make(score=1), make(score=1), "tie"),
        ("he", make(score=1), None, "scored"),
    ],
)
def test_decision(policy: str, victim: NodeRecord, second: NodeRecord | None, expected: str) -> None:
    assert policies.decision_of(policy, victim, second) == expected
