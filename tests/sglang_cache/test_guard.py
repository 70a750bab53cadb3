"""A failure of ours ends our steering, never the scheduler: SGLang's own LRU goes on, and an operator can arm us again."""

import json
import logging
import math
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.sglang.guard import Guard
from pbkv.sglang.steptimes import StepTimes
from pbkv.telemetry import Telemetry
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.moves import Player, life, sequence

PAGE = 4


def break_after(target: Any, name: str, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the given call on, `target.name` raises."""
    work, left = getattr(target, name), [calls]

    def broken(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError(f"broken {name}")
        return work(*args, **kwargs)

    monkeypatch.setattr(target, name, broken)


def patch(bench: Bench, **changes: Any) -> tuple[int, str]:
    body = {"patch": {"if_version": bench.runtime.knobs.version, "changes": changes, "actor": "test"}, "wall_ns": 1}
    return bench.runtime.commands.answer("patch", json.dumps(body))


WORK = [
    ("device", "peek"), ("device", "add"), ("device", "discard"), ("host", "peek"), ("state", "split"),
    (None, "next_device_victim"), (None, "end_device_walk"), (None, "next_host_victim"), (None, "node_split"), (None, "removed"),
    (None, "backed_up"), ("prefetch", "reap"),
]


@pytest.mark.parametrize("after", [0, 17])
@pytest.mark.parametrize(("part", "name"), WORK)
def test_the_cache_goes_on_as_the_stock_cache_would(
    part: str | None, name: str, after: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:
    """Under lru the plugin is SGLang's own cache move for move, so it must stay that through a fault and after it."""
    shape: dict[str, Any] = {"page": PAGE, "host": 1.5, "size": 8 * 3 * PAGE}
    stock, ours = Player(Bench(**shape)), Player(Bench(plugin={"policy": "lru"}, **shape))
    runtime = ours.bench.runtime
    break_after(getattr(runtime, part) if part else runtime, name, after, monkeypatch)
    for move in life(5, 3 * PAGE, host=True):
        stock.play(move)
        ours.play(move)
        assert ours.log == stock.log, f"they part at {move}"
    assert f"broken {name}" in runtime.guard.fault
    assert runtime.guard.faults == 1
    assert sum(r.levelno >= logging.ERROR for r in caplog.records) == 1, "said once, not at every step"
    stock.bench.close()
    ours.bench.close()


def fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        break_after(bench.runtime, "next_device_victim", 0, patched)
        bench.evict(1)
    assert bench.runtime.guard.fault


def some_life(bench: Bench, seed: int, steps: int = 120) -> None:
    rng = random.Random(seed)
    for _ in range(steps):
        bench.runtime.guard.run(bench.call, f"w{rng.randrange(6)}", rng.choice("abc"), sequence(rng, 3 * PAGE), final=rng.random() < 0.1)
        bench.settle()


def test_a_fault_is_said_where_knob_changes_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(plugin={"policy": "he"}, page=PAGE, size=32 * PAGE, host=1.5)
    some_life(bench, 1)
    fault(bench, monkeypatch)
    assert bench.runtime.knobs["policy"] == "lru"
    last = json.loads(bench.runtime.commands.answer("history", "{}")[1])[-1]
    assert (last["name"], last["old"], last["new"], last["source"], last["actor"]) == ("policy", "he", "lru", "guard", "engine")
    assert "broken next_device_victim" in last["reason"]
    state = json.loads(bench.runtime.commands.answer("state", "{}")[1])
    assert "broken next_device_victim" in state["fault"]
    assert state["faults"] == 1
    bench.close()


def test_setting_the_policy_arms_it_again_with_a_clean_slate(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(plugin={"policy": "he"}, page=PAGE, size=32 * PAGE, host=1.5)
    some_life(bench, 2)
    fault(bench, monkeypatch)
    rng = random.Random(3)
    for _ in range(40):  # the tree changes while we look away
        bench.put(sequence(rng, 3 * PAGE))
        bench.settle()
    assert patch(bench, gamma=0.5)[0] == 200
    assert bench.runtime.guard.fault, "only the policy arms it again"
    assert patch(bench, policy="first_use")[0] == 200
    assert not bench.runtime.guard.fault
    assert not bench.runtime.state.live
    bench.check()
    some_life(bench, 4)
    assert bench.runtime.state.live
    assert not bench.runtime.guard.fault
    bench.check()
    bench.close()


def test_a_call_that_began_before_a_fault_is_nobodys_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(plugin={"policy": "he"}, page=PAGE, size=32 * PAGE, host=None)
    tokens = list(range(3 * PAGE))
    end = bench.put(tokens)
    req = SimpleNamespace(
        rid="r", last_node=end, cached_tokens=0, kv_hints=None, session_id=None, output_ids=[], origin_input_ids=tokens,
        sampling_params=SimpleNamespace(custom_params={"pbkv": {"workflow": "w", "agent": "a", "final": True}}), finished_reason=None,
    )
    bench.runtime.calls.checkpoint(req)
    assert bench.runtime.state.live["w"].running == 1
    fault(bench, monkeypatch)
    patch(bench, policy="he")
    bench.runtime.calls.finish(req)
    assert not bench.runtime.state.live
    assert not bench.runtime.guard.fault
    bench.close()


@pytest.mark.parametrize("report", ["eviction", "changed", "prediction", "workflow", "window"])
def test_a_failing_report_ends_reports_alone(report: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ranks have no telemetry: what fails in it must not change a decision."""
    def broken(*args: Any) -> None:
        raise RuntimeError("cannot report")

    monkeypatch.setattr(Telemetry, report, broken)
    loud = Bench(plugin={"policy": "he"}, page=PAGE, size=24 * PAGE, host=1.5, observe=True)
    silent = Bench(plugin={"policy": "he"}, page=PAGE, size=24 * PAGE, host=1.5)
    for bench in (loud, silent):
        rng = random.Random(7)
        for n in range(150):
            bench.call(f"w{rng.randrange(6)}", rng.choice("abc"), sequence(rng, 3 * PAGE), final=rng.random() < 0.1)
            bench.settle()
            bench.runtime.step = n
    if report == "window":
        loud.runtime.prefetch.windows.step(0, idle=True)
        loud.runtime.prefetch.window(5_000_000_000, False, 1e9)
    assert loud.runtime.telemetry is None
    assert not loud.runtime.guard.fault
    assert loud.runtime.counts == silent.runtime.counts
    assert [n.key.raw_token_ids().tolist() for n in loud.nodes()] == [n.key.raw_token_ids().tolist() for n in silent.nodes()]
    loud.close()
    silent.close()


# ---- between the hooks -----------------------------------------------------------------------------------------------------------


def test_a_failing_tick_is_a_fault_like_any_other_and_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Ticks come every second for as long as the server lives: one that fails must not fill the log."""
    bench = Bench(plugin={"policy": "he", "retire_idle_s": 5.0}, page=PAGE, size=32 * PAGE, host=None)
    some_life(bench, 5, steps=20)
    with monkeypatch.context() as patched:
        break_after(bench.runtime.state, "_retire", 0, patched)
        for second in range(10, 60):
            assert bench.runtime.commands.answer("tick", json.dumps({"now": second, "wall_ns": 1}))[0] == 200
    assert "broken _retire" in bench.runtime.guard.fault
    assert bench.runtime.guard.faults == 1
    assert sum(r.levelno >= logging.ERROR for r in caplog.records) == 1
    assert bench.runtime.state.now == 59, "unconfirmed changes expire by this clock, fault or not"
    assert patch(bench, policy="he")[0] == 200
    assert not bench.runtime.guard.fault


def test_a_policy_that_cannot_be_set_up_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(plugin={"policy": "he"}, page=PAGE, size=32 * PAGE, host=None)
    some_life(bench, 6, steps=20)
    with monkeypatch.context() as patched:
        break_after(bench.runtime.state, "rescore", 0, patched)
        assert patch(bench, policy="first_use")[0] == 200
    assert "broken rescore" in bench.runtime.guard.fault
    assert bench.runtime.knobs["policy"] == "lru"
    assert bench.evict(1) > 0, "SGLang's own order goes on"
    bench.close()


def test_the_end_of_a_trial_arms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that is taken back by itself is no operator's hand: after a fault in the trial lru stays, what else was tried goes."""
    bench = Bench(plugin={"policy": "he"}, page=PAGE, size=32 * PAGE, host=None)
    runtime = bench.runtime
    body = {"if_version": 1, "changes": {"policy": "first_use", "gamma": 0.3}, "actor": "test", "expires_s": 10.0}
    assert runtime.commands.answer("patch", json.dumps({"patch": body, "wall_ns": 1}))[0] == 200
    some_life(bench, 7, steps=20)
    fault(bench, monkeypatch)
    assert runtime.commands.answer("tick", json.dumps({"now": 11.0, "wall_ns": 1}))[0] == 200
    assert runtime.guard.fault
    assert (runtime.knobs["policy"], runtime.knobs["gamma"]) == ("lru", 0.8)
    assert runtime.knobs.expires_at is None
    bench.close()


def test_faults_again_and_again_are_counted_and_each_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There is one line in the log per time that an operator armed it, however many hooks run meanwhile."""
    bench = Bench(plugin={"policy": "he"}, page=PAGE, size=32 * PAGE, host=None)
    for n in range(5):
        some_life(bench, 10 + n, steps=30)
        fault(bench, monkeypatch)
        some_life(bench, 20 + n, steps=30)
        assert patch(bench, policy="he")[0] == 200
        bench.check()
    assert bench.runtime.guard.faults == 5
    assert sum(r.levelno >= logging.ERROR for r in caplog.records) == 5
    bench.close()


def test_only_the_outermost_work_is_timed_and_only_steps_that_ran_a_batch() -> None:
    guard, clock = Guard(lambda: None), iter(range(0, 10_000, 1000))
    now = [0]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pbkv.sglang.guard.time.perf_counter_ns", lambda: now.__setitem__(0, next(clock)) or now[0])
        guard.run(lambda: guard.run(lambda: guard.run(int)))  # two readings: one microsecond
        guard.end_step(idle=False)
        guard.run(int)
        guard.end_step(idle=True)
        guard.end_step(idle=False)
    told = guard.steps.summary()
    assert (told["steps"], told["mean"], told["max"]) == (2, 0.5, 1.0)


def test_times_are_kept_also_of_work_that_fails() -> None:
    guard = Guard(lambda: None)
    guard.run(lambda: guard.run(int, "no number"))
    assert guard.fault
    guard.end_step(idle=False)
    assert guard.steps.summary()["max"] > 0
    assert not guard._inside


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=400))
def test_quantiles_of_step_times_are_at_most_a_ninth_too_high(times: list[int]) -> None:
    steps = StepTimes()
    for ns in times:
        steps.add(ns)
    for q in (0.5, 0.99):
        exact = sorted(times)[math.ceil(q * len(times)) - 1] / 1e3
        assert exact <= steps.quantile(q) <= max(exact * 2 ** (1 / 8) + 1e-9, 2e-3)
    assert steps.summary()["max"] == round(max(times) / 1e3, 1)
