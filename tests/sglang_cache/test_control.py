"""Commands as the scheduler runs them: applied at a step, refused with a status, never an exception."""

import json
from typing import Any

import pytest

from pbkv.control.commands import MAX_HISTORY
from pbkv.events.wire import decode
from pbkv.knobs import KNOBS
from pbkv.sglang.control import PbkvCommandReq, handle
from tests.sglang_cache.harness import Bench

A, B = list(range(100, 140)), list(range(500, 540))


@pytest.fixture
def bench() -> Bench:
    return Bench(plugin={"policy": "he"}, page=1, size=256, host=None, observe=True)


def send(bench: Bench, op: str, **body: Any) -> tuple[int, Any]:
    answer = handle(bench.runtime, PbkvCommandReq(op=op, body=json.dumps(body)))
    return answer.status, json.loads(answer.body)


def patch(bench: Bench, version: int, changes: dict[str, Any], **more: Any) -> tuple[int, Any]:
    return send(bench, "patch", patch={"if_version": version, "changes": changes, "actor": "test", **more}, wall_ns=123)


def test_the_knobs_are_described(bench: Bench) -> None:
    status, body = send(bench, "knobs")
    assert status == 200
    assert body["version"] == 1
    assert set(body["knobs"]) == set(KNOBS)


def test_a_change_takes_effect_at_the_step_it_names(bench: Bench) -> None:
    for _ in range(9):
        bench.runtime.predictor.observe([0], 0)
    bench.call("w", "a", A)
    (record,) = bench.records(A)
    bench.runtime.step = 42
    before = record.score
    status, body = patch(bench, 1, {"gamma": 0.1, "k": 8}, reason="try")
    assert (status, body["version"], body["step"]) == (200, 2, 42)
    assert {c["name"]: (c["old"], c["new"]) for c in body["changes"]} == {"gamma": (0.8, 0.1), "k": (3, 8)}
    assert record.score < before
    bench.check()
    history = send(bench, "history")[1]
    assert [(h["name"], h["step"], h["wall_ns"], h["source"], h["reason"]) for h in history] == [
        ("gamma", 42, 123, "manual", "try"), ("k", 42, 123, "manual", "try"),
    ]
    bench.runtime.telemetry.end_step(42)
    assert sum(len(decode(p).tables.get("knob", ())) for p in bench.sink.payloads) == 2


def test_a_change_of_policy_reorders_the_warm_cache(bench: Bench) -> None:
    bench.call("old", "a", A)
    bench.call("new", "a", B, final=True)
    assert bench.runtime.device.peek() is bench.records(B)[0]
    assert patch(bench, 1, {"policy": "lru"})[0] == 200
    bench.check()
    assert bench.runtime.device.peek() is bench.records(A)[0]  # looking touches, so B was looked at first
    assert len(bench.nodes()) == 2


@pytest.mark.parametrize(
    ("version", "changes", "status", "names"),
    [
        (9, {"gamma": 0.5}, 409, "version"),
        (1, {"gamma": 1.5}, 422, "gamma"),
        (1, {"gamma": 0.5, "k": 0}, 422, "k"),
        (1, {"nonsense": 1}, 422, "nonsense"),
        (1, {"policy": "belady"}, 422, "policy"),
    ],
)
def test_a_refused_change_changes_nothing(bench: Bench, version: int, changes: dict[str, Any], status: int, names: str) -> None:
    before = dict(bench.runtime.knobs.values)
    found, body = patch(bench, version, changes)
    assert found == status
    assert names in body["error"]
    assert bench.runtime.knobs.values == before
    assert bench.runtime.commands.history == []


def test_an_unconfirmed_change_is_taken_back_by_the_clock(bench: Bench) -> None:
    send(bench, "tick", now=100.0, wall_ns=1)
    assert patch(bench, 1, {"gamma": 0.1}, expires_s=10.0)[0] == 200
    send(bench, "tick", now=109.0, wall_ns=2)
    assert bench.runtime.knobs["gamma"] == 0.1
    send(bench, "tick", now=111.0, wall_ns=3)
    assert bench.runtime.knobs["gamma"] == 0.8
    assert [(h["source"], h["new"]) for h in bench.runtime.commands.history] == [("manual", 0.1), ("expiry", 0.8)]


def test_a_confirmed_change_stays(bench: Bench) -> None:
    send(bench, "tick", now=100.0, wall_ns=1)
    version = patch(bench, 1, {"gamma": 0.1}, expires_s=10.0)[1]["version"]
    assert send(bench, "confirm", version=version + 5)[0] == 409
    assert send(bench, "confirm", version=version) == (200, {"version": version, "step": 0})
    send(bench, "tick", now=500.0, wall_ns=3)
    assert bench.runtime.knobs["gamma"] == 0.1


def test_the_clock_retires_idle_workflows(bench: Bench) -> None:
    bench.call("w", "a", A)
    send(bench, "tick", now=599.0, wall_ns=1)
    assert len(bench.runtime.state.live) == 1
    send(bench, "tick", now=601.0, wall_ns=1)
    assert bench.records(A)[0].retired
    bench.check()


def test_the_state_counts(bench: Bench) -> None:
    bench.call("w", "a", A)
    bench.evict(len(A))
    status, body = send(bench, "state")
    assert status == 200
    assert (body["engine"], body["workflows"], body["leaves"], body["epoch"]) == ("sglang", 1, 0, None)
    assert (body["counts"]["evicted_nodes"], body["counts"]["evicted_tokens"]) == (1, len(A))


@pytest.mark.parametrize(
    ("op", "body"), [("nothing", "{}"), ("patch", "{}"), ("patch", "not json"), ("tick", '{"now": "x"}'), ("confirm", "[]")]
)
def test_a_broken_command_is_answered_and_the_scheduler_goes_on(bench: Bench, op: str, body: str) -> None:
    answer = handle(bench.runtime, PbkvCommandReq(op=op, body=body))
    assert answer.status == 500
    assert "error" in json.loads(answer.body)
    assert send(bench, "knobs")[0] == 200


def test_the_history_is_bounded(bench: Bench) -> None:
    for n in range(MAX_HISTORY + 20):
        assert patch(bench, n + 1, {"gamma": (n % 10) / 10})[0] == 200
    assert len(bench.runtime.commands.history) == MAX_HISTORY
    assert bench.runtime.commands.history[-1]["version"] == MAX_HISTORY + 21
