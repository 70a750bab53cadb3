"""The token-level generators: repeatable, the same agents in every layout, sizes as their parameters say."""

import itertools
import statistics
from collections import Counter
from dataclasses import replace

import pytest

from pbkv.errors import UsageError
from pbkv.workloads.finance_like import CHAIN, FinanceLike, FinanceProcess
from pbkv.workloads.generator import LONGEST, Generator
from pbkv.workloads.hover_like import ANALYZER, DECOMPOSER, SCOUTS, VERIFIER, HoverLike, HoverProcess
from pbkv.workloads.layouts import LAYOUTS
from pbkv.workloads.swe_like import EDITOR, EXECUTOR, NAVIGATOR, PLANNER, SweLike, SweProcess
from pbkv.workloads.tokens import TokenWorkflow

ALL: tuple[Generator, ...] = (HoverLike(), SweLike(), FinanceLike(), FinanceLike(turns=3))


def some(workload: Generator, count: int, seed: int = 0) -> list[TokenWorkflow]:
    return list(itertools.islice(workload.workflows(seed), count))


@pytest.mark.parametrize("workload", ALL, ids=lambda w: w.name)
def test_same_seed_same_workflows_other_seed_others(workload: Generator) -> None:
    assert some(workload, 5, seed=3) == some(workload, 5, seed=3)
    assert some(workload, 5, seed=3) != some(workload, 5, seed=4)


@pytest.mark.parametrize("workload", ALL, ids=lambda w: w.name)
def test_a_workflow_depends_on_seed_and_number_alone(workload: Generator) -> None:
    one, other = workload.workflows(1), workload.workflows(1)
    interleaved = [w for pair in zip(itertools.islice(one, 5), itertools.islice(other, 5), strict=True) for w in pair]
    assert interleaved[::2] == interleaved[1::2] == some(workload, 5, seed=1)


@pytest.mark.parametrize("workload", ALL, ids=lambda w: w.name)
def test_layout_and_scales_leave_the_agents_alone(workload: Generator) -> None:
    paths = [w.agents for w in some(workload, 10)]
    for layout in LAYOUTS:
        assert [w.agents for w in some(replace(workload, layout=layout, output_scale=2.0, delay_scale=0.1), 10)] == paths


def test_layouts_see_the_same_outputs_and_delays() -> None:
    def seen(layout: str) -> list[tuple[int, float]]:
        return [(c.output.tokens, c.delay_s) for w in some(HoverLike(layout=layout), 10) for c in w.calls]  # type: ignore[arg-type]

    assert seen("private") == seen("shared") == seen("group")


def test_names_are_unique_and_tell_seed_and_number() -> None:
    assert [w.name for w in some(HoverLike(), 3, seed=7)] == ["hover-7-0", "hover-7-1", "hover-7-2"]


def test_hover_begins_with_the_decomposer_and_ends_with_the_verifier() -> None:
    for workflow in some(HoverLike(), 200):
        path = workflow.agents
        assert path[0] == DECOMPOSER and path[-1] == VERIFIER
        rounds = " ".join(path[1:-1]).split(ANALYZER)
        assert 2 <= len(rounds) - 1 <= 6
        assert rounds[-1] == ""
        for scouts in rounds[:-1]:
            names = scouts.split()
            assert 1 <= len(names) <= 3
            assert len(set(names)) == len(names) and set(names) <= set(SCOUTS)


def test_hover_mostly_repeats_its_plan() -> None:
    same = later = 0
    for workflow in some(HoverLike(), 300):
        rounds = " ".join(workflow.agents[1:-1]).split(ANALYZER)[:-1]
        same += sum(a.split() == b.split() for a, b in itertools.pairwise(rounds))
        later += len(rounds) - 1
    assert 0.83 < same / later < 0.93


def test_swe_runs_are_helpers_between_turns_of_the_planner() -> None:
    lengths: dict[str, list[int]] = {agent: [] for agent in (PLANNER, NAVIGATOR, EDITOR, EXECUTOR)}
    for workflow in some(SweLike(max_calls=256), 200):
        assert workflow.agents[0] == PLANNER
        runs = [(agent, len(list(group))) for agent, group in itertools.groupby(workflow.agents)]
        assert all((a == PLANNER) != (b == PLANNER) for (a, _), (b, _) in itertools.pairwise(runs))
        for agent, length in runs[:-1]:
            lengths[agent].append(length)
    # The Planner may be followed by itself at a turn's start only within its run, so means are those of the tables.
    for agent, mean in ((PLANNER, 1.65), (NAVIGATOR, 4.89), (EDITOR, 5.49), (EXECUTOR, 5.88)):
        assert statistics.mean(lengths[agent]) == pytest.approx(mean, rel=0.12), agent


def test_swe_is_cut_at_the_limit() -> None:
    counts = [len(w.calls) for w in some(SweLike(max_calls=20), 100)]
    assert max(counts) == 20 and min(counts) < 20


def test_finance_is_a_chain() -> None:
    assert some(FinanceLike(), 1)[0].agents == CHAIN
    assert some(FinanceLike(turns=3), 1)[0].agents == tuple(agent for agent in CHAIN for _ in range(3))


@pytest.mark.parametrize("workload", ALL, ids=lambda w: w.name)
def test_sizes_and_delays_are_around_the_rosters_means(workload: Generator) -> None:
    outputs: dict[str, list[int]] = {}
    delays: dict[str, list[float]] = {}
    for workflow in some(workload, 250):
        for call, before in zip(workflow.calls, (None, *workflow.calls), strict=False):
            outputs.setdefault(call.agent, []).append(call.output.tokens)
            if before is not None:
                delays.setdefault(before.agent, []).append(call.delay_s)
            else:
                assert call.delay_s == 0.0
    for agent, profile in workload.roster.items():
        if len(outputs.get(agent, ())) < 200:
            continue
        assert statistics.mean(outputs[agent]) == pytest.approx(profile.output * workload.output_scale, rel=0.12)
        assert max(outputs[agent]) <= LONGEST * profile.output * workload.output_scale + 1
        if len(delays.get(agent, ())) > 200:
            assert statistics.mean(delays[agent]) == pytest.approx(profile.tool_s * workload.delay_scale, rel=0.2)


def test_only_the_last_call_is_final_unless_abandoned() -> None:
    for workflow in some(HoverLike(), 20):
        assert [c.final for c in workflow.calls] == [False] * (len(workflow.calls) - 1) + [True]
    ends = Counter(w.calls[-1].final for w in some(HoverLike(abandoned=0.3), 400))
    assert 80 < ends[False] < 160
    assert not any(c.final for w in some(HoverLike(abandoned=1.0), 20) for c in w.calls)


def test_agent_prompts_are_shared_between_workflows_and_all_else_is_not() -> None:
    one, other = some(HoverLike(layout="private"), 2)
    common = {s.key for c in one.calls for s in c.prompt} & {s.key for c in other.calls for s in c.prompt}
    prompts = {c.prompt[0].key for w in (one, other) for c in w.calls}
    assert common and common <= prompts


@pytest.mark.parametrize(
    ("field", "value"),
    [("layout", "ring"), ("output_scale", -1.0), ("delay_scale", float("nan")), ("size_sigma", 1e9), ("abandoned", -0.1)],
)
def test_a_bad_parameter_is_named(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=field):
        HoverLike(**{field: value})  # type: ignore[arg-type]


def test_bad_graphs_are_refused() -> None:
    with pytest.raises(UsageError, match="shares"):
        HoverProcess(shares=(0.5, 0.5))
    with pytest.raises(UsageError, match="facts"):
        HoverProcess(facts=(0.5, 0.6))
    with pytest.raises(UsageError, match="max_calls"):
        SweProcess(max_calls=1000)
    with pytest.raises(UsageError, match="turns"):
        FinanceProcess(turns=0)
