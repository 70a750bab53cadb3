"""A call as the cache sees it, from its first checkpoint to its report, with requests of SGLang's shape."""

import json
import logging
from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH

from pbkv.events.schema import BY_NAME
from pbkv.events.wire import decode
from pbkv.sglang.calls import MAX_CLOSES
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
        output_ids=[1, 2, 3], finished_reason=FINISH_LENGTH(3), time_stats=times, extra_key=None, cache_salt=None,
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


def unrun(bench: Bench, **options: Any) -> Any:
    """A request in the waiting queue."""
    req = request(bench, A, **options)
    req.origin_input_ids, req.output_ids = array("q", A), array("q")
    req.cached_tokens_device, req.finished_reason = 0, None
    req.time_stats = SimpleNamespace(scheduler_recv_time=10.0, forward_entry_time=0.0, prefill_finished_time=0.0)
    bench.runtime.calls.queued(req)
    return req


def status(row: Any) -> str:
    return BY_NAME["call"].field("status").values[row["status"]]


def test_a_call_aborted_in_the_queue_is_told_but_taught_to_nobody(bench: Bench) -> None:
    first = request(bench, A, custom=identity("w", "plan"))
    bench.runtime.calls.checkpoint(first)
    bench.runtime.calls.finish(first)
    bench.runtime.calls.dropped(unrun(bench, custom=identity("w", "code")))
    done, aborted = rows(bench, "call")
    assert (status(done), status(aborted)) == ("done", "aborted")
    assert (aborted["step"], aborted["prompt_tokens"], aborted["output_tokens"], aborted["end_node"], aborted["pages"]) == (1, 48, 0, 0, 0)
    assert aborted["workflow"] == done["workflow"]
    assert names(bench)[aborted["agent"]] == "code"
    assert (aborted["prefill_ms"], aborted["ttft_ms"]) == (0.0, 0.0)
    assert aborted["queue_ms"] == aborted["e2e_ms"] > 0, "all it did was wait"
    workflow = bench.runtime.state.live["w"]
    assert (workflow.calls, workflow.running, len(workflow.path)) == (1, 0, 1)
    assert bench.runtime.counts["calls"] == 2


def test_a_first_call_aborted_in_the_queue_starts_no_workflow(bench: Bench) -> None:
    bench.runtime.calls.dropped(unrun(bench, custom=identity("w", "a")))
    (row,) = rows(bench, "call")
    assert (names(bench)[row["workflow"]], row["step"], row["attributed"]) == ("w", 0, 1)
    assert not bench.runtime.state.live
    assert rows(bench, "workflow") == []


def test_a_final_call_ends_its_workflow_although_it_was_aborted_in_the_queue(bench: Bench) -> None:
    first = request(bench, A, custom=identity())
    bench.runtime.calls.checkpoint(first)
    bench.runtime.calls.finish(first)
    bench.runtime.calls.dropped(unrun(bench, custom=identity(final=True)))
    assert not bench.runtime.state.live
    assert bench.records(A)[0].retired


@pytest.mark.parametrize("custom", [None, {"pbkv": 5}])
def test_a_nameless_call_aborted_in_the_queue_is_told_too(bench: Bench, custom: Any) -> None:
    bench.runtime.calls.dropped(unrun(bench, custom=custom))
    (row,) = rows(bench, "call")
    assert (status(row), row["attributed"]) == ("aborted", 0)
    assert bench.runtime.counts["unattributed"] == 1


def test_a_call_aborted_after_a_retraction_has_ended(bench: Bench) -> None:
    """Its KV was released while it was not finished, so nothing but the message to the client tells of its end."""
    req = request(bench, A, custom=identity())
    req.finished_reason = None
    bench.runtime.calls.queued(req)
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.queued(req)
    bench.runtime.calls.dropped(req)
    assert bench.runtime.state.live["w"].running == 0
    assert [status(r) for r in rows(bench, "call")] == ["aborted"]


def test_an_abort_that_comes_by_twice_is_one_abort(bench: Bench) -> None:
    """A call in a chunked prefill releases its KV, then its client is told."""
    req = request(bench, A, custom=identity())
    bench.runtime.calls.checkpoint(req)
    req.finished_reason = FINISH_ABORT("gone")
    bench.runtime.calls.finish(req)
    bench.runtime.calls.dropped(req)
    assert bench.runtime.state.live["w"].running == 0
    assert len(rows(bench, "call")) == 1


def test_a_refused_call_holds_nothing(bench: Bench) -> None:
    """SGLang tells the client of a full queue before its method for queueing returns."""
    bench.runtime.commands.answer("patch", json.dumps(
        {"patch": {"if_version": 1, "changes": {"policy": "first_use"}, "actor": "t"}, "wall_ns": 1}
    ))
    assert bench.runtime.policy.uses_holds
    req = unrun(bench, custom=identity())
    assert bench.runtime._held
    bench.runtime.calls.prune([])
    bench.runtime.calls.dropped(req)
    bench.runtime.calls.queued(req)
    assert not bench.runtime._held


def test_a_call_whose_kv_never_entered_the_tree_is_a_call_all_the_same(bench: Bench) -> None:
    req = request(bench, A, custom=identity())
    bench.runtime.calls.finish(req)
    (row,) = rows(bench, "call")
    assert (status(row), row["end_node"], row["pages"]) == ("done", 0, 0)
    assert bench.runtime.state.live["w"].calls == 1
    assert bench.runtime.state.live["w"].running == 0


# ---- ends of sessions ------------------------------------------------------------------------------------------------------------


def ended_by(bench: Bench) -> list[str]:
    reasons = BY_NAME["workflow"].field("reason").values
    kinds = BY_NAME["workflow"].field("event").values
    return [reasons[r["reason"]] for r in rows(bench, "workflow") if kinds[r["event"]] == "retire"]


@pytest.mark.parametrize("started", [False, True])
def test_a_session_closed_while_its_calls_wait_ends_with_the_last_of_them(bench: Bench, started: bool) -> None:
    if started:
        earlier = request(bench, A[:8], session="s")
        bench.runtime.calls.checkpoint(earlier)
        bench.runtime.calls.finish(earlier)
    waiting = request(bench, A, session="s")
    bench.runtime.calls.queued(waiting)
    bench.runtime.close("s")
    bench.runtime.calls.checkpoint(waiting)
    assert bench.runtime.state.live["s"].running == 1
    bench.runtime.calls.finish(waiting)
    assert not bench.runtime.state.live
    assert ended_by(bench) == ["closed"] * (1 + started)
    assert bench.records(A)[-1].retired


def test_a_session_closed_while_a_call_runs_ends_with_it(bench: Bench) -> None:
    req = request(bench, A, session="s")
    bench.runtime.calls.queued(req)
    bench.runtime.calls.checkpoint(req)
    assert bench.runtime.close("s")
    assert bench.runtime.state.live["s"].running == 1
    bench.runtime.calls.finish(req)
    assert not bench.runtime.state.live
    assert ended_by(bench) == ["closed"]


def test_a_session_that_comes_back_after_its_end_lives_on(bench: Bench) -> None:
    bench.runtime.close("s")
    req = request(bench, A, session="s")
    bench.runtime.calls.queued(req)
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    assert bench.runtime.state.live["s"].ended is None


def test_ends_of_sessions_nobody_knows_take_bounded_room(bench: Bench) -> None:
    for n in range(3 * MAX_CLOSES):
        assert not bench.runtime.close(f"nobody-{n}")
    assert len(bench.runtime.calls._closes) == MAX_CLOSES


def test_times_that_were_never_taken_are_zero(bench: Bench) -> None:
    req = request(bench, A, custom=identity())
    req.time_stats = SimpleNamespace(scheduler_recv_time=0.0, forward_entry_time=0.0, prefill_finished_time=None)
    bench.runtime.calls.checkpoint(req)
    bench.runtime.calls.finish(req)
    (row,) = rows(bench, "call")
    assert (row["queue_ms"], row["prefill_ms"], row["ttft_ms"], row["e2e_ms"]) == (0.0, 0.0, 0.0, 0.0)
