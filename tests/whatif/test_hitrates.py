"""The cache alone: the engine's tree and policies, driven call by call, against the same tree driven by the tests of SGLang's cache."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pbkv.engine.settings import EngineSettings
from pbkv.errors import UsageError
from pbkv.identity import CallIdentity
from pbkv.whatif.cachealone import CacheAlone
from pbkv.whatif.curves import BLOCKS, BOUND, MAX_SIZES, curves
from pbkv.whatif.hitrates import CACHE_FIGURES, LOOK_EVERY, replay_cache
from pbkv.whatif.order import order_of
from pbkv.whatif.recording import NOWHERE, RecordedCall, RecordedWorkflow, Recording
from pbkv.whatif.replay import replay
from pbkv.whatif.setting import Setting
from tests.engine.invariants import check_tree
from tests.engine.parts import make_manager, make_tree
from tests.whatif.small import small

POLICIES = ("lru", "lae", "session_lae", "kvflow", "kvflow_all", "he", "first_use")


def driven(recording: Recording, policy: str) -> tuple[list[tuple[int, int]], dict[str, int]]:
    """Hits in pages per call, and the manager's counts, of a tree that is driven as the tests drive SGLang's."""
    engine = recording.engine
    knobs = {**recording.knobs, "policy": policy, "prefetch": "off"}
    manager = make_manager(knobs)
    page = engine.page_size
    tree: Any = make_tree(engine.device_tokens, engine.host_tokens, page, engine.write_policy, manager)
    state, found = manager.state, list[tuple[int, int]]()
    for turn in order_of(recording):
        workflow = recording.workflows[turn.workflow]
        call = workflow.calls[turn.call]
        match = tree.match(call.pages, (call.prompt_tokens - 1) // page)
        host = match.host_pages if match.host_pages and tree.load_back(match.best) else 0
        end = match.best if host else match.device
        tree.lock(end)
        tree.copies.settle()
        node = put(tree, end, call.pages[match.device_pages + host :])
        live, agent = state.begin_call(CallIdentity(workflow.name, call.agent, call.final))
        state.touch(live, agent, records(node, tree.root))
        tree.copies.settle()
        last = put(tree, node, call.output_pages) if call.output_pages else node
        tree.unlock(last)
        tree.copies.settle()
        if call.output_pages:
            state.touch(live, agent, records(last, node), output=True)
        state.end_call(live, final=call.final)
        found.append((match.device_pages, host))
        check_tree(tree)
    return found, manager.counts


def put(tree: Any, end: Any, pages: tuple[int, ...]) -> Any:
    tree.make_room(len(pages))
    tree.device.take(len(pages))
    return tree.insert(end, pages, 0, 0, 0, first=True, lock=True)


def records(node: Any, stop: Any) -> list[Any]:
    path: list[Any] = []
    while node is not stop:
        path.insert(0, node.record)
        node = node.parent
    return path


@pytest.mark.parametrize("policy", POLICIES)
def test_hits_and_evictions_are_the_trees(policy: str) -> None:
    made = small(workflows=16)
    found, counts = driven(made, policy)
    outcome = replay_cache(made, Setting(policy=policy))
    page = made.engine.page_size
    assert [(device // page, host // page) for device, host in outcome.calls[["device_hit", "host_hit"]].tolist()] == found
    live, retired = outcome.figures["evicted_live"], outcome.figures["evicted_retired"]
    assert live + retired == counts["evicted_tokens"] > 0
    if policy != "lru":  # which is not told of workflows by `replay_cache`
        assert retired == counts["evicted_retired_tokens"] > 0 and live > 0


@pytest.mark.parametrize("write_policy", ["write_through", "write_back"])
def test_a_host_tier_is_the_trees(write_policy: str) -> None:
    made = small(workflows=16, device_tokens=40_000, host_tokens=80_000, write_policy=write_policy)
    found, _ = driven(made, "he")
    outcome = replay_cache(made, Setting(policy="he"))
    page = made.engine.page_size
    assert [(device // page, host // page) for device, host in outcome.calls[["device_hit", "host_hit"]].tolist()] == found
    assert outcome.figures["hit_host"] > 0.01
    assert outcome.figures["moved_bytes"] == outcome.figures["backup_bytes"] + outcome.figures["demand_bytes"] > 0


def test_figures_are_those_that_need_no_time() -> None:
    outcome = replay_cache(small())
    assert {name for name, value in outcome.figures.items() if not math.isnan(value)} == set(CACHE_FIGURES)
    assert outcome.figures["hit"] == outcome.figures["hit_device"] + outcome.figures["hit_host"]
    assert len(outcome.calls) == small().calls and np.isnan(outcome.calls["ended"]).all()


def test_with_one_call_at_a_time_the_timed_engine_agrees() -> None:
    """Its calls are admitted in the same order; it keeps a page per call more free, and gives outputs room page by page."""
    made = small(concurrency=1, device_tokens=18_048)
    alone, timed = replay_cache(made, Setting(policy="lru")), replay(made, Setting(policy="lru", prefetch="off"))
    assert alone.figures["hit_device"] == pytest.approx(timed.figures["hit_device"], abs=0.01)


def test_workflows_that_were_closed_are_retired() -> None:
    def closed(workflow: RecordedWorkflow, after_s: float) -> RecordedWorkflow:
        return workflow._replace(calls=tuple(call._replace(final=False) for call in workflow.calls), closed_s=after_s)

    made = replace(small(), knobs={**small().knobs, "retire_idle_s": 86_400.0})
    open_ = replace(made, workflows=tuple(closed(w, math.nan) for w in made.workflows))
    shut = replace(made, workflows=tuple(closed(w, 1.0) for w in made.workflows))
    lae = Setting(policy="lae")
    assert replay_cache(open_, lae).figures["evicted_retired"] == 0
    assert replay_cache(shut, lae).figures == replay_cache(made, lae).figures


def test_idle_workflows_are_retired_by_the_clock_of_the_order() -> None:
    made = small()
    idle = replace(made, workflows=tuple(w._replace(calls=tuple(c._replace(final=False) for c in w.calls)) for w in made.workflows))
    knobs = {**made.knobs, "retire_idle_s": 30.0}
    assert replay_cache(replace(idle, knobs=knobs), Setting(policy="lae")).figures["evicted_retired"] > 0


def test_calls_without_identity_leave_only_recency() -> None:
    made = small()
    nobody = replace(made, workflows=tuple(w._replace(attributed=False) for w in made.workflows))
    found = [replay_cache(nobody, Setting(policy=policy)).calls["device_hit"].tolist() for policy in ("lru", "lae", "he", "first_use")]
    assert found[0] == found[1] == found[2] == found[3]
    assert found[0] == replay_cache(made, Setting(policy="lru")).calls["device_hit"].tolist()


def test_calls_longer_than_the_pool_are_refused() -> None:
    made = small()
    longest = max(call.prompt_tokens + call.output_tokens for workflow in made.workflows for call in workflow.calls)
    outcome = replay_cache(made, Setting(device_tokens=longest // 2))
    assert 0 < len(outcome.calls) < made.calls
    with pytest.raises(UsageError, match="no call fits into device_tokens = 128; take a larger pool"):
        replay_cache(made, Setting(device_tokens=128))


def test_it_can_be_stopped_and_tells_how_far_it_is() -> None:
    calls = tuple(RecordedCall("a", (n,), 65, 1, (), False, 0, NOWHERE, float(n)) for n in range(3 * LOOK_EVERY))
    made = Recording("made", (RecordedWorkflow("w", calls),), EngineSettings())
    told: list[int] = []
    lru = Setting(policy="lru")
    stopped = replay_cache(made, lru, stop=lambda: len(told) == 2, progress=told.append)
    assert not stopped.complete and len(stopped.calls) == told[-1] == 2 * LOOK_EVERY - 1
    assert replay_cache(made, lru).complete


def test_nothing_to_replay() -> None:
    with pytest.raises(UsageError, match="made: no calls to replay"):
        replay_cache(Recording("made", ()))


def test_one_call() -> None:
    call = RecordedCall("a", (1, 2), 130, 3, ())
    outcome = replay_cache(Recording("made", (RecordedWorkflow("w", (call,)),)), Setting(policy="lru"))
    assert outcome.calls["prompt"].tolist() == [130] and outcome.figures["hit"] == 0.0


# ---- curves ------------------------------------------------------------------------------------------------------------------


def test_curves_rise_with_the_pool_and_stay_below_the_bound() -> None:
    made, sizes = small(workflows=40), [20_032, 40_000, 60_032, 120_000, 1_000_000]
    points = curves(made, sizes, POLICIES)
    by_curve = {name: [point.hit for point in points if point.curve == name] for name in (*POLICIES, BOUND, BLOCKS)}
    assert all(len(hits) == len(sizes) for hits in by_curve.values())
    for name in POLICIES:
        assert all(hit <= most + 1e-9 for hit, most in zip(by_curve[name], by_curve[BOUND], strict=True)), name
    assert by_curve["lru"][1] < by_curve["lae"][1] < by_curve[BOUND][1], "a regime in which the order matters"
    for hits in by_curve.values():
        assert hits[-1] == pytest.approx(by_curve["lru"][-1]), "nothing is evicted"
    assert by_curve[BLOCKS] == sorted(by_curve[BLOCKS])
    assert points[0].miss == 1.0 - points[0].hit


def test_points_are_those_of_single_replays() -> None:
    made = small()
    points = curves(made, [40_000], ("he",), bound=False, setting=Setting(gamma=0.5))
    assert [point.curve for point in points] == [BLOCKS, "he"]
    assert points[1].hit == replay_cache(made, Setting(policy="he", gamma=0.5, device_tokens=40_000)).figures["hit_device"]


def test_curves_can_be_stopped() -> None:
    told: list[int] = []
    points = curves(small(), [30_016, 40_000, 50_048], ("lru", "lae"), stop=lambda: len(told) >= 2, progress=told.append)
    assert [point.curve for point in points] == [BLOCKS] * 3 + ["lru"] * 2 and told == [4, 5]


def test_curves_want_sizes_and_policies_that_can_be() -> None:
    with pytest.raises(UsageError, match=f"0 pool sizes: expected 1 to {MAX_SIZES}"):
        curves(small(), [])
    with pytest.raises(UsageError, match="device_tokens = -64: expected at least two pages"):
        curves(small(), [-64])
    with pytest.raises(UsageError, match="policy = 'best': expected one of lru, lae"):
        curves(small(), [40_000], ("best",))


def test_the_cache_alone_balances() -> None:
    made = small(device_tokens=40_000, host_tokens=60_000)
    cache = CacheAlone(made.engine, Setting(policy="first_use").knobs_on(made))
    for turn in order_of(made):
        workflow = made.workflows[turn.workflow]
        cache.play(workflow, workflow.calls[turn.call])
        check_tree(cache.tree)
        assert not cache.tree.device.held and not cache.tree.device.locked
