"""The synthetic workflows: repeatable, bounded, and shaped like their namesakes."""

import itertools
from collections import Counter

import pytest

from pbkv.errors import UsageError
from pbkv.workloads import financebench, hover, swebench
from pbkv.workloads.base import Call, Play, Workload
from pbkv.workloads.catalog import WORKLOADS, make_workload
from pbkv.workloads.conversation import size


def play(one: Play) -> list[Call]:
    """All calls of a workflow, each answered with text of the length asked for."""
    calls = [next(one.script)]
    while True:
        try:
            calls.append(one.script.send(f"{len(calls):03d}" + "r" * (calls[-1].max_tokens - 3)))
        except StopIteration:
            return calls


def some(workload: Workload, count: int) -> list[list[Call]]:
    return [play(p) for p in itertools.islice(workload.plays(), count)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_same_seed_same_workflows_other_seed_others(name: str) -> None:
    assert some(make_workload(name, seed=3), 4) == some(make_workload(name, seed=3), 4)
    assert some(make_workload(name, seed=3), 4) != some(make_workload(name, seed=4), 4)


@pytest.mark.parametrize("name", WORKLOADS)
def test_prompt_and_reply_fit_the_limit(name: str) -> None:
    for calls in some(make_workload(name, limit=900), 40):
        assert all(size(c.messages) + c.max_tokens <= 900 for c in calls)


@pytest.mark.parametrize("name", WORKLOADS)
def test_only_a_last_call_is_final_and_some_workflows_never_say_so(name: str) -> None:
    workflows = some(make_workload(name), 100)
    assert all(not c.final for calls in workflows for c in calls[:-1])
    unfinished = sum(not calls[-1].final for calls in workflows)
    assert 1 <= unfinished <= 30


@pytest.mark.parametrize("name", WORKLOADS)
def test_names_are_unique_and_pace_scales_thinking(name: str) -> None:
    names = [p.name for p in itertools.islice(make_workload(name).plays(), 50)]
    assert len(set(names)) == 50
    slow = some(make_workload(name, pace=2.0), 3)
    normal = some(make_workload(name), 3)
    assert [c.think_s for w in slow for c in w] == pytest.approx([2 * c.think_s for w in normal for c in w])
    assert all(c.think_s == 0 for w in some(make_workload(name, pace=0), 3) for c in w)


def test_agents_share_their_system_prompt_across_workflows() -> None:
    systems: dict[str, set[str]] = {}
    for calls in some(hover.Hover(), 20):
        for call in calls:
            systems.setdefault(call.agent, set()).add(call.messages[0].content)
    assert set(systems) == set(hover.AGENTS)
    assert all(len(texts) == 1 for texts in systems.values())


def test_hover_runs_from_decomposer_over_scouts_and_analyzer_to_verifier() -> None:
    follow: Counter[tuple[str, str]] = Counter()
    for calls in some(hover.Hover(), 60):
        agents = [c.agent for c in calls]
        assert agents[0] == "Decomposer"
        assert agents[-1] in {"Verifier", "Analyzer"}
        follow.update(itertools.pairwise(agents))
    after_analyzer = {b for a, b in follow if a == "Analyzer"}
    assert {"Verifier", "Scout-Wiki", "Scout-News", "Scout-Data"} <= after_analyzer, "dynamic: the Analyzer sends scouts out again"
    assert all(a.startswith("Scout") for a, b in follow if b == "Analyzer")


def test_swebench_loops_until_the_tests_pass() -> None:
    workflows = [[c.agent for c in calls] for calls in some(swebench.SweBench(), 60)]
    assert {a for w in workflows for a in w} == set(swebench.AGENTS)
    rounds = Counter(w.count("Executor") for w in workflows)
    assert len(rounds) > 2
    assert max(rounds) <= 4
    assert all(b == "Executor" for w in workflows for a, b in itertools.pairwise(w) if a == "Editor")


def test_financebench_is_a_chain_that_may_be_walked_again() -> None:
    chain = list(financebench.AGENTS)
    for calls in some(financebench.FinanceBench(), 60):
        agents = [c.agent for c in calls]
        assert agents == (chain * 3)[: len(agents)]
        assert len(agents) % len(chain) == (0 if calls[-1].final else len(chain) - 1)
    rounds = Counter(len(calls) // len(chain) for calls in some(financebench.FinanceBench(), 60) if calls[-1].final)
    assert set(rounds) == {1, 2, 3}


def test_unknown_workload_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="workload 'chess': no such workload; expected one of hover, swebench, financebench"):
        make_workload("chess")
