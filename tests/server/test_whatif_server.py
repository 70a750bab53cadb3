"""A run of agent workflows on a real server, collected, read back and replayed: what was cached is found again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collector import client
from pbkv.whatif.forecast import fidelity, forecast
from pbkv.whatif.logwindow import Window
from pbkv.whatif.recording import Recording
from pbkv.whatif.replay import replay
from pbkv.whatif.served import replay_served, step_ends
from pbkv.whatif.setting import Setting
from tests.support.lanes import Traffic, agent_traffic
from tests.support.served import read_stretch, served

pytestmark = pytest.mark.server

KNOBS = {"policy": "lru", "prefetch": "conservative"}


class Collected:
    """Two runs of the same traffic with an emptied cache in between: as configured, and with another policy."""

    def __init__(self, model: Path, db: Path) -> None:
        self.db, self.traffic = db, _traffic()
        with served(model, db, knobs=KNOBS) as running:
            self.windows = [running.play(self.traffic, "base"), running.play(self.traffic, "other", {"policy": "he"})]

    def recording(self, number: int) -> Recording:
        return read_stretch(self.db, self.windows[number])

    def ends(self, window: Window) -> np.ndarray:
        with client.open(str(self.db)) as reader:
            return step_ends(lambda sql, given: reader.sql(sql, given, deadline_s=60), window)


def _traffic() -> Traffic:
    return agent_traffic(14, calls=8)[1]


@pytest.fixture(scope="module")
def collected(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Collected:
    return Collected(tiny_model, tmp_path_factory.mktemp("whatif") / "events.duckdb")


def test_the_log_says_what_the_server_is(collected: Collected) -> None:
    recording = collected.recording(0)
    engine = recording.engine
    assert (engine.page_size, engine.device_tokens, engine.max_running, engine.chunk_tokens, engine.overlap) == (16, 4096, 8, 512, True)
    assert engine.host_tokens >= 1.5 * 4096
    assert (recording.calls, recording.unknown_calls) == (collected.traffic.calls, 0)
    # The cache was emptied before, which the log does not say.
    assert [loss for loss in recording.losses if "begins empty" not in loss] == []
    assert (recording.knobs["policy"], collected.recording(1).knobs["policy"]) == ("lru", "he")


@pytest.mark.parametrize("number", [0, 1])
def test_a_run_is_found_again(collected: Collected, number: int) -> None:
    """In a closed loop chance has a say, in this many calls most of all; on the server's own steps it has not."""
    recording, ends = collected.recording(number), collected.ends(collected.windows[number])
    closed, on_steps, measured = replay(recording), replay_served(recording, ends), recording.measured
    for name in ("hit", "hit_device", "hit_host", "evictions", "evicted", "ttft_mean"):
        print(f"{name:12} measured {measured[name]:10.4f} closed {closed.figures[name]:10.4f} on its steps {on_steps.figures[name]:10.4f}")
    assert measured["evictions"] > 40 and measured["hit"] > 0.4
    assert len(ends) > recording.calls
    assert on_steps.figures["hit"] == pytest.approx(measured["hit"], abs=0.03)
    assert on_steps.figures["evictions"] == pytest.approx(measured["evictions"], rel=0.15)
    assert on_steps.figures["latency_mean"] == pytest.approx(measured["latency_mean"], rel=0.1)
    assert closed.figures["hit"] == pytest.approx(measured["hit"], abs=0.06)


def test_a_forecast_names_the_better_policy(collected: Collected) -> None:
    base, other = collected.recording(0), collected.recording(1)
    told = forecast(base, fidelity(base, tolerance=1.0), Setting(policy="he")).estimates["hit"]
    print(f"hit {told.low:.4f} to {told.high:.4f}, measured {other.measured['hit']:.4f}, present {told.present:.4f}")
    assert other.measured["hit"] == pytest.approx(told.value, abs=0.08)
    assert not told.certain or (told.change > 0) == (other.measured["hit"] > told.present)


def test_another_pool_would_not_have_been_found_again(collected: Collected) -> None:
    """The bounds above mean something: a server of half the size differs by more."""
    recording, ends = collected.recording(0), collected.ends(collected.windows[0])
    small = replace(recording, engine=replace(recording.engine, device_tokens=2560, host_tokens=1024))
    assert abs(replay_served(small, ends).figures["hit"] - recording.measured["hit"]) > 0.03
