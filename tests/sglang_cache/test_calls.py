"""A call as the cache sees it, from its first checkpoint to its report, with requests of SGLang's shape."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH

from pbkv.events.schema import BY_NAME
from pbkv.events.wire import decode
from tests.sglang_cache.harness import Bench

A = list(range(100, 148))


@pytest.fixture
def bench() -> Bench:
    return Bench(plugin={}, page=4, size=256, host=None, observe=True)


def request(bench: Bench, tokens: list[int], *, custom: Any = None, session: str | None = None, cached: int = 0) -> Any:
    """A request whose KV is in the tree."""
    times = SimpleNamespace(scheduler_recv_time=10.0, forward_entry_time=10.5, prefill_finished_time=11.0)
    return SimpleNamespace(
        rid="r1", last_node=bench.put(tokens), sampling_params=SimpleNamespace(custom_params=custom), kv_hints=None, session_id=session,
        cached_tokens=cached, cached_tokens_device=cached, cached_tokens_host=0, cached_tokens_storage=0, origin_input_ids=tokens,
        output_ids=[1, 2, 3], finished_reason=FINISH_LENGTH(3), time_stats=times,
    )


def rows(bench: Bench, kind: str) -> list[Any]:
    bench.runtime.telemetry.end_step(1)
    return [row for p in bench.sink.payloads for row in decode(p).tables.get(kind, ())]


def names(bench: Bench) -> dict[int, str]:
    return {int(r["id"]): r["text"].decode() for r in rows(bench, "name")}


def identity(workflow: str = "w", agent: str = "a", *, final: bool = False) -> dict[str, Any]:
    return {"pbkv": {"workflow": workflow, "agent": agent, "final": final}}


def test_a_call_touches_its_path_and_is_reported(bench: Bench) -> None:
    req = request(bench, A, custom=identity())
    bench.runtime.calls.checkpoint(req)
    (record,) = bench.records(A)
    assert [w.name for w in record.live] == ["w"]
    assert bench.runtime.state.live["w"].running == 1
    bench.runtime.calls.finish(req)
    assert bench.runtime.state.live["w"].running == 0
    (row,) = rows(bench, "call")
    told = names(bench)
    assert (told[row["workflow"]], told[row["agent"]], row["step"], row["attributed"]) == ("w", "a", 0, 1)
    assert (row["prompt_tokens"], row["output_tokens"], row["pages"], row["end_node"]) == (48, 3, 12, record.node_id)
    assert (row["queue_ms"], row["prefill_ms"], row["ttft_ms"]) == (500.0, 500.0, 1000.0)
    assert record.page == row["end_page"] != 0


def test_chunks_of_one_call_are_one_call(bench: Bench) -> None:
    req = request(bench, A[:24], custom=identity())
    bench.runtime.calls.checkpoint(req)
    req.last_node = bench.put(A)
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.checkpoint(req)
    assert bench.runtime.counts["calls"] == 1
    assert bench.runtime.state.live["w"].calls == 1
    assert all(r.live for r in bench.records(A))
    bench.runtime.calls.finish(req)
    bench.runtime.calls.finish(req)  # a second release reports nothing
    assert len(rows(bench, "call")) == 1
    assert bench.runtime.state.live["w"].running == 0


def test_only_what_was_cached_before_is_a_hit(bench: Bench) -> None:
    bench.put(A[:24])
    req = request(bench, A, custom=identity(), cached=24)
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.checkpoint(req)
    assert [r.hits for r in bench.records(A)] == [1, 0]


def test_a_final_call_retires_the_workflow_after_its_report(bench: Bench) -> None:
    req = request(bench, A, custom=identity(final=True))
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    assert not bench.runtime.state.live
    assert bench.records(A)[0].retired
    events = [BY_NAME["workflow"].field("event").values[r["event"]] for r in rows(bench, "workflow")]
    assert events == ["start", "end", "retire"]
    assert int(rows(bench, "workflow")[-1]["retired_device_tokens"]) == 48


def test_a_call_without_identity_is_served_and_keeps_its_nodes_from_retiring(bench: Bench) -> None:
    req = request(bench, A)
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    assert bench.records(A)[0].anonymous
    assert bench.runtime.counts["unattributed"] == 1
    (row,) = rows(bench, "call")
    assert (row["workflow"], row["agent"], row["attributed"]) == (0, 0, 0)


@pytest.mark.parametrize("custom", [{"pbkv": "text"}, {"pbkv": {"workflow": 1}}, {"pbkv": None}])
def test_a_malformed_identity_is_counted_and_logged_once_in_a_while(
    bench: Bench, custom: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="pbkv"):
        for _ in range(3):
            req = request(bench, A, custom=custom, session="would be weaker")
            bench.runtime.calls.checkpoint(req)
            bench.runtime.calls.finish(req)
    assert (bench.runtime.counts["malformed"], bench.runtime.counts["unattributed"]) == (3, 3)
    assert not bench.runtime.state.live
    assert len(caplog.records) == 1
    assert "not attributed" in caplog.text


def test_a_session_is_a_workflow(bench: Bench) -> None:
    bench.runtime.calls.checkpoint(request(bench, A, session="s1"))
    assert list(bench.runtime.state.live) == ["s1"]


def test_an_unnamed_agent_has_the_same_name_in_calls_and_predictions(bench: Bench) -> None:
    """Otherwise every prediction for such a workflow would count as wrong."""
    for _ in range(3):
        req = request(bench, A, session="s1")
        bench.runtime.calls.checkpoint(req)
        bench.runtime.calls.finish(req)
    called = {int(r["agent"]) for r in rows(bench, "call")}
    predicted = {int(r["agent"]) for r in rows(bench, "prediction") if r["position"] == 0}
    assert called == predicted
    assert 0 not in called


def test_an_aborted_call_is_reported_as_such(bench: Bench) -> None:
    req = request(bench, A, custom=identity())
    bench.runtime.calls.checkpoint(req)
    req.finished_reason = FINISH_ABORT("gone")
    bench.runtime.calls.finish(req)
    (row,) = rows(bench, "call")
    assert BY_NAME["call"].field("status").values[row["status"]] == "aborted"
    assert bench.runtime.state.live["w"].running == 0


def test_a_call_that_never_reached_the_tree_is_no_call(bench: Bench) -> None:
    req = request(bench, A)
    bench.runtime.calls.finish(req)
    assert rows(bench, "call") == []


def test_times_that_were_never_taken_are_zero(bench: Bench) -> None:
    req = request(bench, A, custom=identity())
    req.time_stats = SimpleNamespace(scheduler_recv_time=10.0, forward_entry_time=0.0, prefill_finished_time=None)
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    (row,) = rows(bench, "call")
    assert (row["queue_ms"], row["prefill_ms"], row["ttft_ms"]) == (0.0, 0.0, 0.0)
