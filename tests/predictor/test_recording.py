"""From a call that ended to a row that is trained on: bounded in memory and on disk, whole after a kill, and whole runs only."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.predictor.dataset import Trace, load_traces, rows, signal_kind
from pbkv.predictor.features import normalised
from pbkv.recorder import MAX_ANSWER, MAX_ROWS, Recorder
from pbkv.recordfile import MIN_BYTES, RecordFile
from pbkv.workflow import Workflow
from pbkv.workloads.adapters.detect import load_workload
from pbkv.workloads.adapters.recording import load_recording

KIND = "ids 100"


def signal(n: int) -> bytes:
    return bytes((n + i) % 120 + 1 for i in range(128))


def play(recorder: Recorder, names: Iterable[str], *, first: int = 1, agents: str = "abc", end: str = "final") -> None:
    """Workflows of one call per agent, all at the same time; signals say which call it is."""
    lives = [Workflow(name, number, 0.0) for number, name in enumerate(names, first)]
    for step, agent in enumerate(agents):
        for life in lives:
            life.calls += 1
            recorder.call(life, agent, step, 10 + step, signal(life.name_id + step), signal(life.name_id + step + 50))
    for life in lives:
        if end:
            recorder.ended(life, end)


def drain(recorder: Recorder, file: RecordFile) -> int:
    lost, more = 0, True
    while more:
        answer = json.loads(json.dumps(recorder.since(file.epoch, file.last)))
        file.add(answer)
        lost += answer["lost"]
        more = answer["more"]
    return lost


def save(path: Path, recorder: Recorder, max_bytes: int = MIN_BYTES) -> None:
    with RecordFile(path, max_bytes) as file:
        drain(recorder, file)


# ---- memory ------------------------------------------------------------------------------------------------------------------


def test_rows_are_numbered_and_told_once() -> None:
    recorder = Recorder(KIND)
    play(recorder, ["w"])
    answer = recorder.since(0, 0)
    assert [row["n"] for row in answer["rows"]] == [1, 2, 3, 4]
    assert (answer["signal"], answer["lost"], answer["more"]) == (KIND, 0, False)
    assert recorder.since(recorder.epoch, 4)["rows"] == []
    assert [row["n"] for row in recorder.since(recorder.epoch, 2)["rows"]] == [3, 4]
    assert len(recorder.since(recorder.epoch + 1, 4)["rows"]) == 4  # rows of another recording are not these


def test_memory_is_bounded_and_what_was_dropped_is_told() -> None:
    recorder = Recorder(KIND)
    for _ in range(MAX_ROWS // 4 + 2):
        play(recorder, ["w"])
    answer = recorder.since(recorder.epoch, 3)
    assert answer["lost"] == 8 - 3 and answer["rows"][0]["n"] == 9
    assert len(answer["rows"]) == MAX_ANSWER and answer["more"]
    assert recorder.since(0, 0)["lost"] == 8


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 60))
def test_a_reader_sees_each_row_once_in_order_or_is_told_of_it(bursts: list[int], every: int) -> None:
    recorder, last, lost, seen, made = Recorder(""), 0, 0, [], 0
    recorder._rows = type(recorder._rows)(maxlen=25)
    for n, burst in enumerate(bursts):
        for _ in range(burst):
            recorder.call(Workflow("w", 1, 0.0), "a", 0, 1)
        made += burst
        if n % every == 0:
            answer = recorder.since(recorder.epoch, last)
            seen += [row["n"] for row in answer["rows"]]
            lost += answer["lost"]
            last = seen[-1] if seen else 0
    answer = recorder.since(recorder.epoch, last)
    seen += [row["n"] for row in answer["rows"]]
    assert seen == sorted(set(seen)) and len(seen) + lost + answer["lost"] == made


# ---- the file ----------------------------------------------------------------------------------------------------------------


def test_a_recording_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path, recorder = tmp_path / "r.jsonl", Recorder(KIND)
    play(recorder, ["w1"])
    save(path, recorder)
    play(recorder, ["w2"], first=2)
    with RecordFile(path, MIN_BYTES) as file:
        assert (file.epoch, file.last, file.signal) == (recorder.epoch, 4, KIND)
        drain(recorder, file)
        assert file.rows == 4
    numbers = [row["n"] for line in path.read_text().splitlines() if "n" in (row := json.loads(line))]
    assert numbers == list(range(1, 9))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_kill_in_the_middle_of_a_line_loses_no_row(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path, recorder = tmp_path_factory.mktemp("cut") / "r.jsonl", Recorder(KIND)
    play(recorder, ["w1", "w2"])
    save(path, recorder)
    whole = path.read_bytes()
    head = whole.index(b"\n") + 1
    path.write_bytes(whole[: data.draw(st.integers(head, len(whole)))])
    if len(path.read_bytes()) > head:
        assert not path.read_bytes().endswith(b"\n") or path.read_bytes() == whole[: path.stat().st_size]
    save(path, recorder)
    assert path.read_bytes() == whole


def test_the_file_is_bounded_and_its_older_part_is_read_too(tmp_path: Path) -> None:
    path, recorder = tmp_path / "r.jsonl", Recorder(KIND)
    with RecordFile(path, MIN_BYTES) as file:
        for n in range(1200):
            play(recorder, [f"w{n}"], first=n + 1)
            drain(recorder, file)
    older = tmp_path / "r.jsonl.1"
    assert path.stat().st_size + older.stat().st_size <= MIN_BYTES + 4096
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.jsonl", "r.jsonl.1"]
    runs = load_recording(path).runs
    assert [run.name.split(" ")[0] for run in runs][-1] == "w1199"
    assert len(runs) > 300 and all(run.agents == ("a", "b", "c") for run in runs)
    with RecordFile(path, MIN_BYTES) as file:  # a part that opens with nothing but its head says how far the recording goes
        assert (file.epoch, file.last) == (recorder.epoch, 4800)


def test_a_server_that_starts_anew_is_told_apart(tmp_path: Path) -> None:
    path, recorders = tmp_path / "r.jsonl", [Recorder(KIND), Recorder(KIND)]
    recorders[1].epoch = recorders[0].epoch + 1
    for recorder in recorders:
        play(recorder, ["same"])
        save(path, recorder)
    assert [run.agents for run in load_recording(path).runs] == [("a", "b", "c")] * 2


@pytest.mark.parametrize("content", [b"{}\n", b"hi", b'{"timestamp": 0}\n', b'{"pbkv_record": 1}\n', b'{"pbkv_record":1,"epoch":1}\n3\n'])
def test_another_file_is_not_written_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="name another file"):
        RecordFile(path, MIN_BYTES)
    assert path.read_bytes() == content


def test_two_writers_are_refused_and_so_are_useless_limits(tmp_path: Path) -> None:
    with RecordFile(tmp_path / "r.jsonl", MIN_BYTES), pytest.raises(UsageError, match="another process records into it"):
        RecordFile(tmp_path / "r.jsonl", MIN_BYTES)
    with pytest.raises(UsageError, match="at least 1048576"):
        RecordFile(tmp_path / "s.jsonl", MIN_BYTES - 1)
    with pytest.raises(UsageError, match="No such file"):
        RecordFile(tmp_path / "gone" / "s.jsonl", MIN_BYTES)


# ---- reading -----------------------------------------------------------------------------------------------------------------


def test_a_recording_is_a_workload_with_signals(tmp_path: Path) -> None:
    path, recorder = tmp_path / "r.jsonl", Recorder(KIND)
    play(recorder, ["w1", "w2"])
    save(path, recorder)
    workload: Any = load_workload(path)
    run = workload.runs[0]
    assert workload.signal == KIND
    assert (run.agents, run.outputs) == (("a", "b", "c"), (10, 11, 12))
    assert run.prompts == tuple(signal(1 + n) for n in range(3)) and run.texts == tuple(signal(51 + n) for n in range(3))
    calls = next(w for w in workload.workflows(0) if w.name == run.name).calls
    assert [(call.heard, call.text) for call in calls] == list(zip(run.prompts, run.texts, strict=True))


def test_only_whole_runs_are_learned_from(tmp_path: Path) -> None:
    """A run that was joined late, cut short or aborted would teach an end that there was none."""
    path, recorder = tmp_path / "r.jsonl", Recorder("")
    play(recorder, ["whole"], first=1)
    play(recorder, ["open"], first=2, end="")
    play(recorder, ["aborted"], first=3, end="aborted")
    late = Workflow("late", 4, 0.0)
    recorder.call(late, "b", 1, 1)
    recorder.ended(late, "closed")
    play(recorder, ["idle"], first=5, end="idle")
    save(path, recorder)
    assert [run.name.split(" ")[0] for run in load_recording(path).runs] == ["whole", "idle"]


def test_calls_that_ended_in_another_order_are_put_right(tmp_path: Path) -> None:
    path, recorder, life = tmp_path / "r.jsonl", Recorder(""), Workflow("w", 1, 0.0)
    for step in (1, 0):
        recorder.call(life, "ab"[step], step, 1)
    recorder.ended(life, "final")
    recorder.call(life, "c", 2, 1)  # told after the end, in the same step of the server
    save(path, recorder)
    assert load_recording(path).runs[0].agents == ("a", "b", "c")


@pytest.mark.parametrize(("line", "words"), [
    ('{"w": 1, "workflow": "w", "step": -1, "agent": "a", "output_tokens": 1}', "step"),
    ('{"w": "x", "workflow": "w", "step": 0, "agent": "a", "output_tokens": 1}', "w = 'x'"),
    ('{"w": 9, "workflow": "w", "step": 0, "agent": "a", "output_tokens": 1, "prompt": "AAAA"}', "prompt"),
    ('{"w": 9, "workflow": "w", "step": 0, "agent": "a", "output_tokens": 1, "reply": "!"}', "reply"),
    ('{"w": 9, "workflow": "w", "step": 0, "output_tokens": 1}', "agent"),
    ("[]", "object"), ("{", "line 6 is not JSON"), ('{"pbkv_record": 2, "epoch": 1}', "pbkv_record = 2"),
])
def test_a_bad_line_is_one_sentence_that_names_it(tmp_path: Path, line: str, words: str) -> None:
    path, recorder = tmp_path / "r.jsonl", Recorder("")
    play(recorder, ["w1"])
    save(path, recorder)
    with path.open("a") as stream:
        stream.write(line + '\n{"w": 9, "end": "final"}\n')
    with pytest.raises(UsageError, match=r"recording .*line 6") as caught:
        load_recording(path)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_what_cannot_be_learned_from_is_said(tmp_path: Path) -> None:
    path, recorder = tmp_path / "r.jsonl", Recorder(KIND)
    play(recorder, ["w"], end="")
    save(path, recorder)
    with pytest.raises(UsageError, match="no workflow from its first call to its end"):
        load_recording(path)
    other = Recorder("ids 7")
    other.epoch += 1
    play(other, ["w"])
    save(path, other)
    with pytest.raises(UsageError, match="signals of 2 kinds"):
        load_recording(path)


# ---- training rows -----------------------------------------------------------------------------------------------------------


def test_at_prefill_the_prompt_is_known_and_at_reply_the_output(tmp_path: Path) -> None:
    path, recorder = tmp_path / "r.jsonl", Recorder(KIND)
    play(recorder, ["w1"])
    save(path, recorder)
    traces = load_traces([path])
    table = rows(traces, ["a", "b", "c"])
    expected = normalised(np.array([list(signal(1 + n + 50 * reply)) for n in range(3) for reply in (0, 1)], np.float32))
    assert np.allclose(table.texts[table.text], expected)
    assert np.allclose(np.stack([traces[0].known(n, reply) for n in range(3) for reply in (0, 1)]), expected)
    assert signal_kind(traces) == KIND


def test_a_signal_that_is_missing_is_absent_and_not_zero() -> None:
    texts, prompts = np.eye(3, 4, dtype=np.float32), np.eye(3, 4, 1, dtype=np.float32)
    texts[1] = prompts[2] = 0
    trace = Trace("w", ("a", "b", "c"), texts, prompts)
    table = rows([Trace("v", ("a",), texts[:1]), trace], ["a", "b", "c"])
    assert table.text.tolist() == [-1, 0, 4, 1, 5, -1, -1, 3]
    assert [trace.known(n, 0) is None for n in range(3)] == [False, False, True]
    assert Trace("w", ("a",)).known(0, 1) is None


def test_signals_of_different_models_are_not_mixed() -> None:
    texts = np.eye(1, 4, dtype=np.float32)
    with pytest.raises(UsageError, match="say nothing about each other"):
        signal_kind([Trace("v", ("a",), texts, signal="ids 7"), Trace("w", ("a",), texts, signal="ids 8")])
    assert signal_kind([Trace("v", ("a",), signal="ids 7"), Trace("w", ("a",), texts)]) == ""
