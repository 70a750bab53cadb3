"""Runs of whole cells: repeatable, and in the order that theory gives."""

from dataclasses import replace
from functools import cache

import pytest

from pbkv.bench.cell import Cell, Result
from pbkv.bench.run import Known, make_engine, make_player, run_cell, supply
from pbkv.bench.source import workflows
from pbkv.errors import UsageError
from pbkv.eviction.first_use import FirstUse
from tests.bench.small import small


@cache
def run(cell: Cell) -> Result:
    return run_cell(cell)


def test_the_same_cell_gives_the_same_figures() -> None:
    cell = small(policy="first_use", predictor="bayes")
    assert run_cell(cell) == run_cell(cell)
    assert run(cell) != run(replace(cell, seed=1))


def test_the_order_in_which_cells_run_changes_nothing() -> None:
    cell = small(policy="he", predictor="markov")
    alone = run_cell(cell)
    for other in (small("shared"), small(page_size=16, device_tokens=100_000), small(seed=3), small(policy="clairvoyant")):
        run_cell(other)
    assert run_cell(cell) == alone


def test_every_workflow_that_is_measured_is_whole() -> None:
    cell = small()
    measured = workflows(cell.source, cell.seed, supply(cell))[cell.warm : cell.warm + cell.workflows]
    assert run(cell)["calls"] == sum(len(w.calls) for w in measured)


def test_hits_cannot_exceed_what_a_cache_without_limit_gives() -> None:
    cell = small(device_tokens=4_000_000)
    best = run(cell)
    assert run(small())["hit"] < best["hit"]
    for policy in ("lae", "he", "first_use", "clairvoyant"):
        assert run(replace(cell, policy=policy))["hit"] == pytest.approx(best["hit"], abs=0.5)
    assert best["evicted_tokens"] == 0


@pytest.mark.parametrize("layout", ["private", "shared", "group"])
def test_who_knows_more_hits_more(layout: str) -> None:
    cell = small(layout, device_tokens={"private": 150_016, "shared": 150_016, "group": 250_048}[layout])  # type: ignore[arg-type]
    lru, clairvoyant = run(cell), run(replace(cell, policy="clairvoyant"))
    perfect = run(replace(cell, policy="first_use", predictor="perfect"))
    assert clairvoyant["hit"] > lru["hit"] + 3
    assert perfect["hit"] > lru["hit"] + 3
    assert clairvoyant["hit"] > perfect["hit"] - 3


def test_noise_and_parts_matter() -> None:
    cell = small(policy="first_use", predictor="perfect")
    assert run(replace(cell, noise=1.0))["hit"] < run(cell)["hit"]
    plain = run(replace(cell, parts=("hold", "stale", "structural_reads", "first_passage")))
    assert plain["hit"] != run(cell)["hit"]
    with pytest.raises(UsageError, match="no parts"):
        run_cell(small(policy="he", parts=("hold",)))


def test_parts_switch_off_what_they_name() -> None:
    engine = make_engine(small(policy="first_use", predictor="bayes", parts=("hold",)))
    assert isinstance(engine.manager.policy, FirstUse)
    assert engine.manager.policy is engine.manager.state.policy


def test_prefetch_moves_bytes_only_with_a_host_tier() -> None:
    cell = small(policy="he", predictor="perfect", host_tokens=400_000, device_tokens=64_000)
    off, aggressive = run(cell), run(replace(cell, prefetch="aggressive"))
    assert off["prefetch_bytes"] == 0 < aggressive["prefetch_bytes"]
    assert off["demand_bytes"] > 0 and off["hit_device"] < off["hit"]
    assert run(replace(cell, host_tokens=0, prefetch="aggressive"))["prefetch_bytes"] == 0


def test_a_slow_link_costs_time() -> None:
    cell = small(policy="he", predictor="perfect", host_tokens=400_000, device_tokens=64_000)
    assert run(replace(cell, link_bytes_per_s=1e9, link_share=0.5))["ttft_mean"] > run(cell)["ttft_mean"]


def test_timings_are_linear_or_presets() -> None:
    assert run(small(timing="qwen3-14b@h100/2"))["latency_mean"] < run(small(timing="qwen3-14b@h100/1"))["latency_mean"]
    with pytest.raises(UsageError, match="model preset"):
        run_cell(small(timing="abacus"))


def test_workflows_beyond_those_made_ahead_follow() -> None:
    cell = small()
    many = Known(cell).workflows(0)
    names = [next(many).name for _ in range(supply(cell) + 3)]
    assert names == [f"hover-0-{n}" for n in range(supply(cell) + 3)]


def test_replay_obeys_the_recorded_order() -> None:
    cell = small(replay=True, device_tokens=150_016)
    lru, belady, bounded = run(cell), run(replace(cell, policy="belady")), run(replace(cell, device_tokens=4_000_000, policy="belady"))
    assert lru["hit"] < belady["hit"] < bounded["hit"]
    assert lru["calls"] == belady["calls"] == run(small(device_tokens=150_016))["calls"]
    for policy in ("lae", "he", "first_use"):
        assert run(replace(cell, policy=policy, predictor="perfect"))["hit"] <= belady["hit"] + 1


def test_the_clairvoyants_order_is_made_anew_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pbkv.bench.run._REFRESH", 10)
    player = make_player(small(policy="clairvoyant"))
    queue, made = player.engine.manager.device, list[int]()
    order_by = queue.order_by
    monkeypatch.setattr(queue, "order_by", lambda key: (made.append(1), order_by(key)))
    played = player.run()
    assert len(made) == played.calls_played // 10
