"""On the steps that a server took, its run is found again whatever the timing says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from pbkv.engine.timing import Linear
from pbkv.whatif.logwindow import Window
from pbkv.whatif.recording import Recording
from pbkv.whatif.replay import replay
from pbkv.whatif.served import replay_served, step_ends
from tests.engine.workloads import Mixed
from tests.whatif.runs import Run, make_engine, opened, read, run_play

SHAPES: list[dict[str, Any]] = [
    {"page_size": 16, "device_tokens": 1500, "host_tokens": 3000}, {"page_size": 16, "device_tokens": 1200},
    {"page_size": 1, "device_tokens": 900, "host_tokens": 1500, "max_running": 4},
]
SLOW = Linear(prefill_base_s=0.1, decode_base_s=0.2)


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, np.ndarray, Run]:
    run = run_play(make_engine(request.param, {"policy": "he"}), Mixed(), workflows=60)
    path = run.store(tmp_path_factory.mktemp("served") / "run.duckdb")
    with opened(path) as query:
        return read(path), step_ends(query, Window()), run


def test_every_step_has_an_end(served: tuple[Recording, np.ndarray, Run]) -> None:
    _, ends, run = served
    rows = run.table("batch")
    steps = [int(row["tokens"] // row["requests"]) if row["mode"] == 2 else 1 for row in rows]
    assert len(ends) == sum(steps) > len(rows)
    assert (np.diff(ends) >= 0).all()
    assert ends[-1] == pytest.approx(float(run.table("call")["ended_s"].max()), abs=1e-4)


def test_the_run_is_found_again(served: tuple[Recording, np.ndarray, Run]) -> None:
    recording, ends, _ = served
    outcome, measured = replay_served(recording, ends), recording.measured
    # The last calls may lie behind what is measured: the log ends while others run.
    assert outcome.complete and recording.calls - 8 <= len(outcome.calls)
    assert measured["evictions"] > 100
    for name, within in (("hit", 0.005), ("hit_device", 0.005), ("hit_host", 0.005)):
        assert outcome.figures[name] == pytest.approx(measured[name], abs=within), name
    for name in ("evictions", "evicted", "latency_mean", "calls_per_s"):
        assert outcome.figures[name] == pytest.approx(measured[name], rel=0.02), name


def test_the_timing_does_not_matter_to_it(served: tuple[Recording, np.ndarray, Run]) -> None:
    recording, ends, _ = served
    wrong = replace(recording, engine=replace(recording.engine, timing=SLOW))
    assert replay(wrong).figures["ttft_mean"] > 2 * recording.measured["ttft_mean"]
    right, same = replay_served(recording, ends), replay_served(wrong, ends)
    for name in ("hit", "evictions", "ttft_mean", "latency_mean"):
        assert same.figures[name] == pytest.approx(right.figures[name], rel=0.02), name


def test_behind_the_last_step_the_timing_goes_on(served: tuple[Recording, np.ndarray, Run]) -> None:
    recording, ends, _ = served
    cut = replay_served(recording, ends[: len(ends) // 2])
    assert cut.complete and recording.calls - 8 <= len(cut.calls)
    assert replay_served(recording, np.empty(0)).figures["hit"] > 0.1


def test_a_log_without_steps_has_no_ends(served: tuple[Recording, np.ndarray, Run], tmp_path: Path) -> None:
    path = served[2].store(tmp_path / "run.duckdb")
    with duckdb.connect(str(path)) as db:
        db.execute("DELETE FROM raw.batch")
    with opened(path) as query:
        assert not len(step_ends(query, Window()))
