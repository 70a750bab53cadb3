"""PBKV's own numbers on /metrics: what was counted, once, and no failure of theirs reaches the cache."""

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest

from pbkv.sglang.meters import COUNTERS, GAUGES, Meters, meters_of
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.test_calls import identity, request
from tests.sglang_cache.test_forecasts import A, B, C, Trained, forecasting


def shown(meters: Meters) -> dict[str, float]:
    """Series without the base label -> value."""
    meters.update()
    lines = generate_latest(meters.registry).decode().splitlines()
    rows = [line.rpartition(" ") for line in lines if line.startswith("pbkv:") and "_created" not in line]
    return {name.replace('model_name="m",', "").replace('{model_name="m"}', ""): float(value) for name, _, value in rows}


def metered(bench: Bench) -> Meters:
    meters = bench.runtime.meters = Meters(bench.runtime, {"model_name": "m"})
    return meters


def test_every_number_is_there_from_the_start() -> None:
    names = {series.partition("{")[0] for series in shown(metered(Bench(plugin={})))}
    assert names == {f"{name}_total" for name, _, _ in COUNTERS} | {name for name, _ in GAUGES}


def test_what_happened_is_counted_once() -> None:
    bench = forecasting(trained := Trained(), size=96)
    meters = metered(bench)
    for n, tokens in enumerate((A, B, C)):
        bench.call(f"w{n}", "a", tokens)
    bench.runtime.settle()
    trained.broken = True
    bench.call("w1", "b", B)
    bench.runtime.settle()
    bench.runtime.state.close("w0")
    bench.evict(24)
    bench.evict(24)
    bench.runtime.calls.checkpoint(request(bench, A))
    for _ in range(3):
        numbers = shown(meters)
    assert numbers["pbkv:calls_total"] == numbers["pbkv:unattributed_total"] == 1
    assert numbers["pbkv:predictions_total"] == 4
    assert numbers['pbkv:prediction_fallbacks_total{reason="error"}'] == 1
    assert numbers['pbkv:evicted_tokens_total{reason="retired"}'] == 24
    assert numbers['pbkv:evicted_tokens_total{reason="live"}'] == 24
    assert (numbers["pbkv:live_workflows"], numbers["pbkv:retired_workflows_total"], numbers["pbkv:armed"]) == (2, 1, 1)
    bench.runtime.guard.run(lambda: 1 / 0)
    numbers = shown(meters)
    assert (numbers["pbkv:faults_total"], numbers["pbkv:armed"]) == (1, 0)


def test_numbers_go_on_when_a_count_begins_anew() -> None:
    bench = Bench(plugin={})
    meters = metered(bench)
    bench.runtime.counts["calls"] = 7
    assert shown(meters)["pbkv:calls_total"] == 7
    bench.runtime.counts["calls"] = 2
    assert shown(meters)["pbkv:calls_total"] == 7
    bench.runtime.counts["calls"] = 5
    assert shown(meters)["pbkv:calls_total"] == 10


def test_a_step_updates_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    meters = metered(Bench(plugin={}))
    times: list[int] = []
    monkeypatch.setattr(meters, "update", lambda: times.append(1))
    for _ in range(50):
        meters.step()
    assert len(times) == 1


def test_a_full_disk_ends_the_numbers_and_nothing_else(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One rank has meters: a fault of theirs that stopped this rank's work would leave the others waiting."""
    bench = Bench(plugin={})
    meters = metered(bench)

    def fail() -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(meters, "update", fail)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            bench.runtime.guard.run(meters.step)
    assert len(caplog.records) == 1 and not bench.runtime.guard.fault


def test_without_metrics_there_are_no_meters() -> None:
    bench = Bench(plugin={})
    assert bench.runtime.meters is None
    args = SimpleNamespace(enable_metrics=True, served_model_name=None, model_path="m")
    meters = meters_of(bench.runtime, SimpleNamespace(server_args=args, params=bench.ctx.params))
    assert meters is not None and "pbkv:armed" in shown(meters)


def test_what_the_state_counts_is_what_metrics_count() -> None:
    bench = Bench(plugin={})
    bench.runtime.calls.checkpoint(request(bench, A, custom=identity("w", "a")))
    body: Any = json.loads(bench.runtime.commands.answer("state", "{}")[1])
    assert body["counts"]["predictions"] == shown(metered(bench))["pbkv:predictions_total"] == 1
