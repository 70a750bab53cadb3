"""The log of a run in virtual time, replayed at its own setting, is written again: every hit, victim and timestamp."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv.engine.timing import preset
from pbkv.predictor.names import Roster
from pbkv.predictor.uniform import Uniform
from tests.engine.workloads import Mixed
from tests.whatif.actor import Actor, random_plan
from tests.whatif.runs import COMPARED, Run, differences, make_engine, opened, read, replayed, report, rows_of, run_play

SHAPES: list[dict[str, Any]] = [
    {"page_size": 1, "device_tokens": 700},
    {"page_size": 16, "device_tokens": 900, "timing": preset("qwen3-14b@h100")},
    {"page_size": 16, "device_tokens": 900, "host_tokens": 1500, "link_shared": 0.6},
    {"page_size": 4, "device_tokens": 800, "host_tokens": 1200, "write_policy": "write_back"},
    {"page_size": 4, "device_tokens": 800, "host_tokens": 1200, "write_policy": "write_through_selective", "chunk_tokens": 32},
]
POLICIES = ("lru", "lae", "session_lae", "kvflow", "kvflow_all", "he", "first_use")
TURNS = (
    ("policy", ("lru", "he", "first_use", "kvflow")), ("gamma", (0.0, 0.5, 1.0)), ("k", (1, 8)), ("prefetch", ("off", "conservative")),
    ("host_order", ("score", "recency")),
)


def again(run: Run, path: Path, **how: Any) -> dict[str, Any]:
    return differences(run, replayed(read(run.store(path)), **how))


@pytest.mark.parametrize(("shape", "policy"), [
    *((SHAPES[n % len(SHAPES)], policy) for n, policy in enumerate(POLICIES)), (SHAPES[0], "he"), (SHAPES[2], "he"), (SHAPES[3], "he"),
])
def test_a_closed_loop_is_replayed_exactly(shape: dict[str, Any], policy: str, tmp_path: Path) -> None:
    prefetch = ("aggressive" if policy == "he" else "conservative") if "host_tokens" in shape else "off"
    run = run_play(make_engine(shape, {"policy": policy, "prefetch": prefetch}), Mixed(limit=24), workflows=24)
    assert len(run.table("eviction")) > 20
    assert again(run, tmp_path / "run.duckdb") == {}


@pytest.mark.parametrize("attributed", [True, False])
def test_an_open_loop_is_replayed_exactly(attributed: bool, tmp_path: Path) -> None:
    run = run_play(make_engine(SHAPES[2], {}), Mixed(limit=30, gap_s=0.7, attributed=attributed), workflows=30)
    recording = read(run.store(tmp_path / "run.duckdb"))
    assert recording.concurrency is None
    assert differences(run, replayed(recording)) == {}
    assert any("name no workflow" in loss for loss in recording.losses) != attributed


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 24, 53])
def test_aborts_closes_fan_outs_and_turned_knobs_are_replayed_exactly(seed: int, tmp_path: Path) -> None:
    shape = SHAPES[seed % len(SHAPES)]
    made = make_engine({**shape, "max_running": 4}, {"policy": POLICIES[seed % len(POLICIES)], "retire_idle_s": 3.0})
    sink = report(made)
    Actor(made, random_plan(seed, shape["page_size"], turns=TURNS)).run()
    run = Run(sink.payloads)
    calls = run.table("call")
    assert len(run.table("knob")) == 3 * len(TURNS) and len(calls) > 50 and (calls["status"] == 1).any()
    # Where clients give up or close and a knob is turned between the same two steps, only time orders them, and the log has the step's.
    told = replayed(read(run.store(tmp_path / "run.duckdb")))
    assert differences(run, told, tuple(kind for kind in COMPARED if kind not in ("node_score", "workflow"))) == {}
    assert sorted(run.table("workflow")["at_s"]) == sorted(told.table("workflow")["at_s"])


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.integers(1000, 9999), st.sampled_from(SHAPES), st.sampled_from(POLICIES), st.integers(1, 6))
def test_any_life_is_replayed_exactly(seed: int, shape: dict[str, Any], policy: str, running: int) -> None:
    made = make_engine({**shape, "max_running": running}, {"policy": policy, "retire_idle_s": 3.0})
    sink = report(made)
    Actor(made, random_plan(seed, shape["page_size"], flows=10, span_s=4.0)).run()
    run = Run(sink.payloads)
    with TemporaryDirectory() as folder:
        told = replayed(read(run.store(Path(folder) / "run.duckdb")))
    assert differences(run, told, tuple(kind for kind in COMPARED if kind not in ("node_score", "workflow"))) == {}


def test_a_replay_that_differs_is_seen(tmp_path: Path) -> None:
    run = run_play(make_engine(SHAPES[1], {"policy": "he"}), Mixed(limit=24), workflows=24)
    recording = read(run.store(tmp_path / "run.duckdb"))
    first = recording.workflows[0]
    late = first.calls[0]._replace(arrived=first.calls[0].arrived + 1e-9)
    moved = first._replace(calls=(late, *first.calls[1:]))
    assert "call" in differences(run, replayed(replace(recording, workflows=(moved, *recording.workflows[1:]))))


def test_what_another_predictor_said_is_said_again(tmp_path: Path) -> None:
    roster = Roster()
    made = make_engine(SHAPES[1], {"policy": "he"}, Uniform(roster))
    roster.bind(made.manager.state.agent_names)
    run = run_play(made, Mixed(limit=24), workflows=24)
    recording = read(run.store(tmp_path / "run.duckdb"))
    assert recording.predictor == "uniform" and recording.predictions
    told = replayed(recording)
    # A log has the three likeliest agents of each horizon: where there are more, scores are near to what they were, not the same.
    assert len(told.table("prediction")) == len(run.table("prediction"))
    assert int(told.table("call")["device_hit_tokens"].sum()) == pytest.approx(int(run.table("call")["device_hit_tokens"].sum()), rel=0.15)
    with opened(tmp_path / "run.duckdb") as query:
        (row,) = rows_of(query, "SELECT count(*) FILTER (horizon = 1 AND position = 0) AS n FROM raw.prediction").to_pylist()
    assert sum(len(each) for each in recording.predictions.values()) == row["n"]
