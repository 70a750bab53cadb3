"""A failure of ours ends our steering, never the scheduler: SGLang's own LRU goes on, and an operator can arm us again."""

import json
import logging
import random
from types import SimpleNamespace
from typing import Any

import pytest

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
