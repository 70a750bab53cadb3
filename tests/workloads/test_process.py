"""Agent graphs as processes, and the predictor that knows them."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.knobs import K_MAX
from pbkv.predictor.base import Moment
from pbkv.predictor.names import Roster
from pbkv.workloads.bayes import Bayes
from pbkv.workloads.finance_like import FinanceProcess
from pbkv.workloads.hover_like import HoverProcess
from pbkv.workloads.process import Process, State, advance, outlook, walk
from pbkv.workloads.swe_like import SweProcess

PROCESSES = (HoverProcess(), SweProcess(), SweProcess(max_calls=12), FinanceProcess(), FinanceProcess(turns=3))
ANY = st.sampled_from(PROCESSES)
SEEDS = st.integers(0, 10_000)


def brute(process: Process, state: State, steps: int) -> tuple[list[dict[str, float]], list[float]]:
    """`outlook` by following every single path."""
    visits: list[dict[str, float]] = [{} for _ in range(steps)]
    ends = [0.0] * steps

    def follow(here: State, p: float, k: int) -> None:
        if k == steps:
            return
        for q, agent, there in process.branches(here):
            if agent is None:
                ends[k] += p * q
            elif q:
                visits[k][agent] = visits[k].get(agent, 0.0) + p * q
                follow(there, p * q, k + 1)

    follow(state, 1.0, 0)
    return visits, ends


@given(ANY, SEEDS)
def test_branches_are_a_distribution_over_different_agents(process: Process, seed: int) -> None:
    state: State | None = process.start
    for agent in walk(process, random.Random(seed)):
        assert state is not None
        branches = process.branches(state)
        assert sum(b.probability for b in branches) == pytest.approx(1.0)
        assert all(b.probability >= 0 for b in branches)
        assert len({b.agent for b in branches}) == len(branches)
        state = advance(process, state, agent)
    assert state is not None
    assert any(b.agent is None and b.probability > 0 for b in process.branches(state))


@given(ANY, SEEDS, st.integers(0, 6))
def test_outlook_is_the_sum_over_all_paths(process: Process, seed: int, calls: int) -> None:
    state: State | None = process.start
    for agent in itertools.islice(walk(process, random.Random(seed)), calls):
        assert state is not None
        state = advance(process, state, agent)
    assert state is not None
    visits, ends = outlook(process, state, 5)
    expected_visits, expected_ends = brute(process, state, 5)
    assert ends == pytest.approx(expected_ends)
    for step, expected in zip(visits, expected_visits, strict=True):
        assert step == pytest.approx(expected)


@given(ANY, SEEDS)
def test_what_exists_or_has_ended_sums_to_one(process: Process, seed: int) -> None:
    visits, ends = outlook(process, process.start, 40)
    gone = 0.0
    for step, end in zip(visits, ends, strict=True):
        gone += end
        assert sum(step.values()) + gone == pytest.approx(1.0)


def test_outlook_is_what_happens() -> None:
    process = HoverProcess()
    state: State | None = process.start
    for agent in ("Decomposer", "Scout-Wiki", "Scout-News", "Analyzer"):
        assert state is not None
        state = advance(process, state, agent)
    assert state is not None
    visits, _ = outlook(process, state, 3)
    paths = (tuple(walk(process, random.Random(n))) for n in range(20_000))
    after = [p[4:] for p in paths if p[:4] == ("Decomposer", "Scout-Wiki", "Scout-News", "Analyzer")]
    assert len(after) > 500
    for k in range(3):
        for agent, p in visits[k].items():
            assert sum(len(a) > k and a[k] == agent for a in after) / len(after) == pytest.approx(p, abs=0.05)


def test_an_impossible_agent_has_no_state() -> None:
    process = HoverProcess()
    assert advance(process, process.start, "Verifier") is None
    assert advance(process, process.start, "nobody") is None


def moments(path: list[str], roster: Roster) -> list[Moment]:
    ids = [roster.id(agent) for agent in path]
    assert None not in ids
    return [Moment("w", [i for i in ids[: n + 1] if i is not None], n + 1) for n in range(len(path))]


@given(ANY, SEEDS)
def test_bayes_is_the_outlook_of_the_paths_state(process: Process, seed: int) -> None:
    path = list(walk(process, random.Random(seed)))
    roster = Roster(sorted({*path, "someone else"}))
    bayes = Bayes(process, roster)
    state: State | None = process.start
    for agent, moment in zip(path, moments(path, roster), strict=True):
        assert state is not None
        state = advance(process, state, agent)
        assert state is not None
        visits, ends = outlook(process, state, K_MAX)
        prediction = bayes.predict(moment)
        assert prediction == bayes.predict(moment), "a second look at the same call is the same"
        assert list(prediction.ends) == ends
        for step, expected in zip(prediction.visits, visits, strict=True):
            assert step == {roster.id(a): p for a, p in expected.items() if roster.id(a) is not None}


def test_bayes_finds_its_way_from_the_path_alone() -> None:
    """A workflow it has never seen, in the middle; one that begins again under the same name; and calls that it missed."""
    process, names = HoverProcess(), Roster(["Decomposer", "Scout-Wiki", "Analyzer"])
    ahead = Bayes(process, names).predict(Moment("w", [0, 1, 2], 3))
    bayes = Bayes(process, names)
    first = bayes.predict(Moment("w", [0], 1))
    assert bayes.predict(Moment("w", [0, 1, 2], 3)) == ahead
    assert bayes.predict(Moment("w", [0], 1)) == first
    assert first != ahead


def test_bayes_says_nothing_where_it_cannot_know() -> None:
    bayes = Bayes(HoverProcess(), Roster(["Decomposer", "Scout-Wiki", "Analyzer", "Stranger"]))
    assert bayes.predict(Moment("w", [0, 3], 2)).visits == ()
    assert bayes.predict(Moment("w", [0, 3, 1], 3)).visits == (), "and never again in this workflow"
    assert bayes.predict(Moment("v", [1, 2], 300)).visits == (), "its beginning is not in the path"


def test_bayes_leaves_out_agents_the_cache_has_not_met() -> None:
    names = ["Decomposer"]
    bayes = Bayes(HoverProcess(), Roster(names))
    assert all(set(step) <= {0} for step in bayes.predict(Moment("w", [0], 1)).visits)
    names.append("Scout-Wiki")
    assert 1 in bayes.predict(Moment("v", [0], 1)).visits[0]
