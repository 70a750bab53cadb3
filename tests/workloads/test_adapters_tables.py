"""Tables of agent calls and conversations: what is read, the rule for prompt sizes, and what is said about bad files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.workloads.adapters.agent_calls import SIGNAL, load_agent_calls
from pbkv.workloads.adapters.detect import load_workload
from pbkv.workloads.adapters.runs import RecordedRuns, Run, SizeRule
from pbkv.workloads.adapters.who_and_when import load_conversations
from pbkv.workloads.layouts import LAYOUTS, LayoutName

ROWS: list[dict[str, Any]] = [
    {"workflow": "r0", "step": 0, "agent": "Planner", "output_tokens": 10, "text_hash": [1] * SIGNAL},
    {"workflow": "r0", "step": 1, "agent": "Editor", "output_tokens": 0, "text_hash": [-1] * SIGNAL},
    {"workflow": "r0", "step": 2, "agent": "Planner", "output_tokens": 30, "text_hash": [127, -128] * (SIGNAL // 2)},
    {"workflow": "r1", "step": 0, "agent": "Planner", "output_tokens": 7, "text_hash": [0] * SIGNAL},
]


def table(file: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def complaint(load: Callable[[], object]) -> str | None:
    """What is said about the file, None when it was read."""
    try:
        load()
    except UsageError as error:
        return str(error)
    return None


def changed(row: int, **fields: Any) -> list[dict[str, Any]]:
    return [{**r, **fields} if n == row else r for n, r in enumerate(ROWS)]


def test_a_table_is_read_run_by_run(tmp_path: Path) -> None:
    workload = load_agent_calls(table(tmp_path / "calls.parquet", ROWS))
    assert workload.name == "calls"
    assert [(r.name, r.agents, r.outputs) for r in workload.runs] == [
        ("r0", ("Planner", "Editor", "Planner"), (10, 0, 30)), ("r1", ("Planner",), (7,)),
    ]
    assert workload.runs[0].texts == (b"\x01" * SIGNAL, b"\xff" * SIGNAL, b"\x7f\x80" * (SIGNAL // 2))


def test_calls_carry_agent_output_text_and_the_end(tmp_path: Path) -> None:
    workload = load_agent_calls(table(tmp_path / "calls.parquet", ROWS))
    calls = {w.name: w.calls for w in workload.workflows(0)}["r0"]
    assert [c.agent for c in calls] == ["Planner", "Editor", "Planner"]
    assert [c.output.tokens for c in calls] == [10, 1, 30], "an output has at least one token"
    assert [c.final for c in calls] == [False, False, True]
    assert [c.text for c in calls] == list(workload.runs[0].texts or ())
    assert calls[0].delay_s == 0 and all(c.delay_s > 0 for c in calls[1:])


def test_the_text_signal_may_be_missing(tmp_path: Path) -> None:
    rows = [{k: v for k, v in row.items() if k != "text_hash"} for row in ROWS]
    assert all(run.texts is None for run in load_agent_calls(table(tmp_path / "calls.parquet", rows)).runs)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (changed(1, step=5), "row 1: step = 5: expected 1"),
        (changed(1, step=0), "row 1: step = 0: expected 1"),
        (changed(0, step=1), "row 0: step = 1: expected 0"),
        (changed(2, agent=None), "row 2: agent = None: expected a text"),
        (changed(2, agent=""), "row 2: agent = '': expected a text"),
        (changed(2, agent="x" * 300), "row 2: agent = 'xxx"),
        (changed(3, output_tokens=-1), "row 3: output_tokens = -1: expected a whole number from 0"),
        (changed(3, output_tokens=None), "row 3: output_tokens = None"),
        (changed(1, workflow=None), "row 1: workflow = None"),
        (changed(1, text_hash=[1] * 3), "row 1: text_hash has 3 entries"),
        (changed(1, text_hash=[300] * SIGNAL), "row 1: text_hash = [300"),
        (changed(1, text_hash=None), "row 1: text_hash = None"),
        ([*ROWS, {**ROWS[0], "step": 0}], "row 4: workflow = 'r0': expected the rows of a workflow to follow each other"),
        ([{"workflow": "r0", "step": 0, "agent": "a"}], "column 'output_tokens' is missing"),
        (ROWS[:0], "column 'workflow' is missing"),
    ],
)
def test_a_bad_table_is_told_by_row_and_field(tmp_path: Path, rows: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_agent_calls(table(tmp_path / "calls.parquet", rows))
    assert says in str(caught.value) and "calls.parquet" in str(caught.value)


def test_an_empty_table_a_broken_one_and_none(tmp_path: Path) -> None:
    empty = tmp_path / "empty.parquet"
    pq.write_table(pa.table({c: pa.array([], t) for c, t in (
        ("workflow", pa.string()), ("step", pa.int32()), ("agent", pa.string()), ("output_tokens", pa.int32()))}), empty)
    with pytest.raises(UsageError, match="holds no call"):
        load_agent_calls(empty)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(UsageError, match=r"bad.parquet.*cannot be read as Parquet"):
        load_agent_calls(tmp_path / "bad.parquet")
    with pytest.raises(UsageError, match=r"none.parquet.*cannot be read: No such file"):
        load_agent_calls(tmp_path / "none.parquet")


@given(st.binary(max_size=400), st.integers(0, 3000))
def test_any_damage_to_a_table_is_a_usage_error_or_harmless(tmp_path_factory: pytest.TempPathFactory, patch: bytes, at: int) -> None:
    file = table(tmp_path_factory.mktemp("t") / "calls.parquet", ROWS)
    raw = bytearray(file.read_bytes())
    raw[at : at + len(patch)] = patch
    file.write_bytes(raw)
    said = complaint(lambda: load_agent_calls(file))
    assert said is None or ("calls.parquet" in said and "\n" not in said)


RUNS = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5000)), min_size=1, max_size=15), min_size=1, max_size=4
).map(lambda runs: tuple(Run(f"r{n}", tuple(a for a, _ in run), tuple(o for _, o in run)) for n, run in enumerate(runs)))
EXACT = SizeRule(size_sigma=0.0, delay_sigma=0.0)


@given(RUNS, st.sampled_from(LAYOUTS))
def test_prompts_have_the_tokens_that_the_rule_gives(runs: tuple[Run, ...], layout: LayoutName) -> None:
    workload = RecordedRuns("t", runs, layout, EXACT)
    by_name = {run.name: run for run in runs}
    for workflow in workload.workflows(0):
        run = by_name[workflow.name]
        outputs = [max(o, 1) for o in run.outputs]
        for n, call in enumerate(workflow.calls):
            mine = sum(a == call.agent for a in run.agents[: n + 1])
            heard = (mine if layout == "private" else n + 1) * EXACT.news_tokens + sum(outputs[:n])
            system = EXACT.system_tokens if layout == "shared" else 0
            assert call.prompt_tokens == system + EXACT.agent_tokens + EXACT.opening_tokens + heard
            assert call.output.tokens == outputs[n]
            assert call.delay_s == (EXACT.delay_s if n else 0.0)


@given(RUNS, st.integers(0, 5))
def test_each_run_is_played_once_in_an_order_of_the_seed(runs: tuple[Run, ...], seed: int) -> None:
    workload = RecordedRuns("t", runs)
    played = list(workload.workflows(seed))
    assert played == list(workload.workflows(seed))
    assert sorted(w.name for w in played) == sorted(r.name for r in runs)
    assert sorted(played, key=lambda w: w.name) == sorted(workload.workflows(seed + 1), key=lambda w: w.name)


def test_runs_are_cut_and_chosen() -> None:
    runs = tuple(Run(f"r{n}", ("a", "b", "a", "c"), (1, 2, 3, 4)) for n in range(5))
    workload = RecordedRuns("t", runs, max_calls=3).only({"r1", "r4"})
    assert workload.futures() == {"r1": ("a", "b", "a"), "r4": ("a", "b", "a")}
    for workflow in workload.workflows(0):
        assert workflow.agents == ("a", "b", "a")
        assert [c.final for c in workflow.calls] == [False, False, True]


def test_bad_rules_are_refused() -> None:
    with pytest.raises(UsageError, match="news_tokens"):
        SizeRule(news_tokens=-1)
    with pytest.raises(UsageError, match="layout"):
        RecordedRuns("t", (), "ring")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="max_calls"):
        RecordedRuns("t", (), max_calls=-1)


def test_conversations_are_runs_of_their_speakers(tmp_path: Path) -> None:
    said = [("Boss", "Fix it."), ("Coder", "é" * 5), ("Boss", "")]
    history = [{"name": name, "role": "user", "content": text} for name, text in said]
    (tmp_path / "one.json").write_text(json.dumps({"history": history}))
    (workflow,) = load_conversations(tmp_path).workflows(0)
    assert workflow.name == "one"
    assert workflow.agents == ("Boss", "Coder", "Boss")
    assert [c.output.tokens for c in workflow.calls] == [2, 3, 1]


def test_detection_goes_by_content(tmp_path: Path) -> None:
    assert isinstance(load_workload(table(tmp_path / "calls.parquet", ROWS), layout="shared"), RecordedRuns)
    (tmp_path / "talk.json").write_text(json.dumps({"history": [{"name": "a", "content": "b"}]}))
    assert isinstance(load_workload(tmp_path / "talk.json"), RecordedRuns)
    with pytest.raises(UsageError, match="does not exist"):
        load_workload(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=r"holds no \.json file"):
        load_workload(tmp_path / "folder")
