"""What the log says of a SGLang server, so that its calls can be replayed."""

from types import SimpleNamespace
from typing import Any

import pytest

from pbkv.engine.facts import settings_of
from pbkv.sglang import occupancy
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.test_calls import A, identity, names, request, rows

SCHEDULER: Any = SimpleNamespace(waiting_queue=[], running_batch=SimpleNamespace(reqs=[]), max_running_requests=48)


@pytest.fixture
def bench() -> Bench:
    return Bench(plugin={}, page=4, size=256, host=None, observe=True)


def facts(bench: Bench, scheduler: Any, turns: int = 3) -> list[tuple[str, str]]:
    for _ in range(turns):
        bench.runtime.after_plan(scheduler, None)
    told = names(bench)
    return [(told[row["name"]], told[row["value"]]) for row in rows(bench, "setting")]


def test_a_call_says_when_it_came_and_went(bench: Bench) -> None:
    req = request(bench, A, custom=identity())
    req.sampling_params.max_new_tokens = 40
    bench.runtime.calls.queued(req)
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    (row,) = rows(bench, "call")
    assert (row["arrived_s"], row["max_tokens"], row["place"]) == (10.0, 40, 1)
    assert row["ended_s"] - row["arrived_s"] == pytest.approx(row["e2e_ms"] / 1e3, rel=1e-6)


@pytest.mark.parametrize("announced", [None, 0, 2])
def test_no_less_is_announced_than_was_generated(bench: Bench, announced: int | None) -> None:
    req = request(bench, A, custom=identity())
    req.sampling_params.max_new_tokens, req.time_stats.scheduler_recv_time = announced, None
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    (row,) = rows(bench, "call")
    assert (row["max_tokens"], row["place"], row["arrived_s"]) == (3, 0, 0.0)


def test_the_server_is_told_once_and_reads_back(bench: Bench) -> None:
    found = facts(bench, SimpleNamespace(**vars(SCHEDULER), chunked_prefill_size=128))
    assert len(found) == len(dict(found)), "again after a minute, not before"
    assert dict(found).items() >= {"timing": "measured", "predictor": "markov", "knob.gamma": "0.8", "host_tokens": "0"}.items()
    settings = settings_of(dict(found))
    assert (settings.page_size, settings.device_tokens, settings.max_running, settings.chunk_tokens) == (4, 256, 48, 128)


@pytest.mark.parametrize("overlap", [True, False, None])
def test_whether_steps_overlap_is_told(bench: Bench, overlap: bool | None) -> None:
    more = {} if overlap is None else {"enable_overlap": overlap}
    assert settings_of(dict(facts(bench, SimpleNamespace(**vars(SCHEDULER), **more)))).overlap == bool(overlap)


@pytest.mark.parametrize("chunked", [None, 0])
def test_without_chunks_a_step_takes_as_much_as_it_may(bench: Bench, chunked: int | None) -> None:
    found = dict(facts(bench, SimpleNamespace(**vars(SCHEDULER), chunked_prefill_size=chunked, max_prefill_tokens=512)))
    assert found["chunk_tokens"] == "512"


def test_a_host_tier_says_its_size_and_rule() -> None:
    bench = Bench(plugin={}, page=4, size=256, host=2.0, write_policy="write_back", observe=True)
    try:
        found = dict(facts(bench, SCHEDULER))
    finally:
        bench.close()
    assert (int(found["host_tokens"]) >= 512, found["write_policy"]) == (True, "write_back")


def test_a_snapshot_names_pages_and_workflows(bench: Bench) -> None:
    req = request(bench, A, custom=identity())
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    bench.runtime.after_plan(SCHEDULER, None)
    told = names(bench)
    (call,), snapshot = rows(bench, "call"), [row for row in rows(bench, "node_score") if row["snapshot"]]
    assert [(row["page"], told[row["workflow"]]) for row in snapshot] == [(call["end_page"], "w")]


def test_a_snapshot_is_told_to_its_end_before_the_next_begins(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occupancy, "SNAPSHOT_CHUNK", 4)
    for n in range(10):
        req = request(bench, [n * 100 + i for i in range(8)], custom=identity(workflow=f"w{n}"))
        bench.runtime.calls.checkpoint(req)
        bench.runtime.calls.finish(req)
    for _ in range(3):
        bench.runtime.sampler._next_snapshot = 0.0  # due again at once
        bench.runtime.after_plan(SCHEDULER, None)
    ids = [row["node"] for row in rows(bench, "node_score") if row["snapshot"]]
    assert len(ids) == len(set(ids)) == 10
