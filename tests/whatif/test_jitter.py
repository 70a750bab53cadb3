"""What is a little off in time is still the same traffic; planting, starts and recorded predictions by hand."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv.engine.settings import EngineSettings
from pbkv.errors import UsageError
from pbkv.predictor.base import Moment
from pbkv.whatif.from_workload import recording_of
from pbkv.whatif.jitter import jittered, timing_error
from pbkv.whatif.logcalls import predecessors
from pbkv.whatif.logpages import PageTrie
from pbkv.whatif.logwarm import WarmRow, warm_nodes
from pbkv.whatif.predictors import Recorded, default_name, predictor_for
from pbkv.whatif.recording import NOWHERE, RecordedCall, RecordedPrediction, RecordedWorkflow
from pbkv.whatif.replay import replay
from pbkv.whatif.setting import Setting
from pbkv.whatif.starts import find_concurrency, started_by_ends
from tests.engine.workloads import Mixed

ENGINE = EngineSettings(page_size=16, device_tokens=1500, max_running=8)
RECORDING = recording_of(Mixed(limit=12), ENGINE, concurrency=4)


@given(st.floats(0, 5), st.integers(0, 50))
@settings(max_examples=25, deadline=None)
def test_only_times_are_off(shift: float, seed: int) -> None:
    made = jittered(RECORDING, shift, seed)
    calls = {(w.name, n): call for w in made.workflows for n, call in enumerate(w.calls)}
    for workflow in RECORDING.workflows:
        for n, call in enumerate(workflow.calls):
            other = calls[workflow.name, n]
            assert other._replace(delay_s=0.0, arrived=0.0) == call._replace(delay_s=0.0, arrived=0.0)
            assert 0 <= other.delay_s <= call.delay_s + shift and other.delay_s >= call.delay_s - shift - 1e-12
    assert [w.start_s for w in made.workflows] == sorted(w.start_s for w in made.workflows)


def test_the_same_seed_is_off_by_the_same() -> None:
    assert repr(jittered(RECORDING, 0.3, 1)) == repr(jittered(RECORDING, 0.3, 1)) != repr(jittered(RECORDING, 0.3, 2))


def test_time_is_off_by_what_calls_are_off_and_at_least_a_hundredth() -> None:
    outcome = replay(RECORDING)
    took = float(np.median(outcome.calls["ended"] - outcome.calls["arrived"]))
    assert timing_error(RECORDING, outcome) == pytest.approx(0.01 * took)
    rows = {(int(r["workflow"]), int(r["call"])): r for r in outcome.calls}
    told = [
        w._replace(calls=tuple(c._replace(arrived=float(rows[n, m]["arrived"]), ended=float(rows[n, m]["ended"]) + 3.0)
                               for m, c in enumerate(w.calls)))
        for n, w in enumerate(RECORDING.workflows)
    ]
    assert timing_error(replace(RECORDING, workflows=tuple(told)), outcome) == pytest.approx(3.0)
    assert timing_error(RECORDING, replace(outcome, calls=outcome.calls[:0])) == 0.0


# ---- dependencies and starts -------------------------------------------------------------------------------------------------


def test_a_fan_out_waits_for_what_came_before_and_is_waited_for_as_a_whole() -> None:
    times = [(0.0, 1.0), (1.5, 3.0), (1.5, 4.0), (1.5, 2.0), (4.0, 5.0), (4.5, 6.0)]
    assert predecessors(times) == [NOWHERE, 0, 0, 0, 2, 2]


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 20)), max_size=30))
def test_whoever_is_waited_for_had_ended_and_was_the_last(spans: list[tuple[float, float]]) -> None:
    times = sorted((start, start + took) for start, took in spans)
    for n, after in enumerate(predecessors(times)):
        ended = [end for _, end in times[:n] if end <= times[n][0]]
        assert (after == NOWHERE) == (not ended)
        assert not ended or times[after][1] == max(ended)


def flows(spans: list[tuple[float, float]]) -> list[RecordedWorkflow]:
    return [
        RecordedWorkflow(f"w{n}", (RecordedCall("a", (), 1, 1, arrived=start, ended=end),), start) for n, (start, end) in enumerate(spans)
    ]


@given(st.integers(1, 6), st.lists(st.floats(1, 10), min_size=24, max_size=40), st.floats(0, 0.05))
def test_so_many_at_a_time_is_seen(places: int, took: list[float], pause: float) -> None:
    free, spans = [0.0] * places, list[tuple[float, float]]()
    for each in took:
        start = min(free)
        free[free.index(start)] = start + each + pause
        spans.append((start, start + each))
    made = flows(sorted(spans))
    assert find_concurrency(made) == places
    ends = sorted(w.calls[0].ended for w in made)
    for n, workflow in enumerate(started_by_ends(made, places)[places:]):
        assert workflow.start_s == ends[n] and workflow.start_s + workflow.calls[0].delay_s == pytest.approx(workflow.calls[0].arrived)


def test_starts_by_themselves_are_seen() -> None:
    rng = np.random.default_rng(3)
    starts = np.cumsum(rng.exponential(1.0, 200))
    made = flows([(float(start), float(start + took)) for start, took in zip(starts, rng.exponential(4.0, 200), strict=True)])
    assert find_concurrency(made) is None
    assert find_concurrency(made[:5]) is None


# ---- pages and nodes ---------------------------------------------------------------------------------------------------------


def trie(*pairs: tuple[int, int]) -> PageTrie:
    page, parent = (np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    return PageTrie(page, parent)


def test_paths_go_from_the_root_to_the_page_and_share_numbers() -> None:
    made = trie((90, 0), (70, 90), (50, 70), (30, 70), (10, 11), (50, 70))
    deep, fork = made.path(50), made.path(30)
    assert deep is not None and fork is not None and deep[:2] == fork[:2] == made.path(70) and deep != fork
    assert made.path(0) == () and made.path(10) is None and made.path(99) is None
    assert len(made) == 5


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_any_tree_gives_each_page_its_own_path(parents: list[int]) -> None:
    ids = [1000 + 7 * n for n in range(len(parents))]
    above = [0 if not n or parent % (n + 1) == n else ids[parent % (n + 1)] for n, parent in enumerate(parents)]
    made, up = trie(*zip(ids, above, strict=True)), dict(zip(ids, above, strict=True))
    for page in reversed(ids):
        expected, at = [], page
        while at:
            expected.append(made.number(at))
            at = up[at]
        assert made.path(page) == tuple(reversed(expected))


def test_nodes_hang_below_each_other_by_their_pages() -> None:
    made = trie((1, 0), (2, 1), (3, 2), (4, 3), (5, 2))
    rows = [WarmRow(4, 32, 1, 1, 0, 9, 2), WarmRow(2, 32, 3, 1, 0, 8, 3), WarmRow(5, 16, 2, 0, 1, 4, 0), WarmRow(77, 16, 1, 0, 0, 1, 0)]
    nodes = warm_nodes(rows, made)
    assert [(node.parent, len(node.pages), node.on_device, node.on_host) for node in nodes] == [
        (NOWHERE, 2, True, True), (0, 1, False, True), (0, 2, True, False),
    ]
    assert [node.retired for node in nodes] == [False, True, False]
    assert warm_nodes([*rows, rows[0]], made) == nodes, "told of twice"


def test_where_paths_part_a_node_ends_though_the_snapshot_did_not_tell_of_it() -> None:
    made = trie((1, 0), (2, 1), (3, 2), (4, 3), (5, 2))
    nodes = warm_nodes([WarmRow(4, 32, 1, 1, 0, 9, 2), WarmRow(5, 16, 2, 0, 1, 4, 1)], made)
    assert [(node.parent, len(node.pages), node.on_device, node.on_host, node.last_access, node.retired, node.hits) for node in nodes] == [
        (NOWHERE, 2, True, True, 9, False, 3), (0, 1, False, True, 4, True, 1), (0, 2, True, False, 9, False, 2),
    ]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.sets(st.integers(0, 29), min_size=1))
def test_children_of_a_node_begin_with_different_pages(parents: list[int], told: set[int]) -> None:
    made = trie(*((n + 1, parent % (n + 1)) for n, parent in enumerate(parents)))
    nodes = warm_nodes([WarmRow(n + 1, 16, 1 + n % 3, 1, 0, n, 1) for n in told if n < len(parents)], made)
    begins = [(node.parent, node.pages[0]) for node in nodes]
    assert len(set(begins)) == len(begins) and all(node.parent < place for place, node in enumerate(nodes))
    assert {made.number(n + 1) for n in told if n < len(parents)} <= {node.pages[-1] for node in nodes}


# ---- predictions -------------------------------------------------------------------------------------------------------------


def test_predictions_are_said_again() -> None:
    said = RecordedPrediction((0.25, 0.5), ({"a": 0.75}, {"b": 0.25}))
    reply = RecordedPrediction((1.0,), ({},))
    made = Recorded({("w", 1): (said, reply)})
    assert made.at_reply
    made._agent_id = lambda name: ord(name)
    first = made.predict(Moment("w", (1,), 1))
    assert (first.ends[:3], first.visits[:3]) == ((0.25, 0.5, 0.0), ({97: 0.75}, {98: 0.25}, {}))
    assert len(first.ends) == len(first.visits) == 8
    assert made.predict(Moment("w", (1,), 1, reply=True)).ends[0] == 1.0
    assert made.predict(Moment("w", (1,), 2)).ends == made.predict(Moment("v", (1,), 1)).ends == ()


@pytest.mark.parametrize(("predictor", "predictions", "expected"), [
    ("markov", {}, "markov"), ("mixed", {}, "markov"), ("mixed", {("w", 1): ()}, "recorded"), ("markov", {("w", 1): ()}, "markov"),
])
def test_the_default_is_what_gives_the_same(predictor: str, predictions: dict[Any, Any], expected: str) -> None:
    assert default_name(replace(RECORDING, predictor=predictor, predictions=predictions)) == expected


def test_names_of_predictors() -> None:
    assert replay(RECORDING, Setting(predictor="uniform", policy="he")).complete
    with pytest.raises(UsageError, match="has no predictions"):
        predictor_for(RECORDING, "recorded")
    with pytest.raises(UsageError, match="expected one of markov, recorded, uniform, or the folder"):
        predictor_for(RECORDING, "oracle")


def test_what_was_seen_before_is_learned() -> None:
    history = (("A", "B"), ("A", "B")) * 5
    cold, warm = (replay(replace(RECORDING, history=each), Setting(policy="he")).figures["hit"] for each in ((), history))
    assert not math.isnan(cold) and not math.isnan(warm)
    chain, bind = predictor_for(replace(RECORDING, history=history), None)
    agents: dict[str, int] = {}

    class State:
        def agent_id(self, name: str) -> int:
            return agents.setdefault(name, len(agents))

    bind(State())  # type: ignore[arg-type]
    assert chain.predict(Moment("w", (agents["A"],), 1)).visits[0][agents["B"]] > 0.5
