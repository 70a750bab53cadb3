"""`pbkv train --record` as users run it: rows of a server into a file, a kill in between, refusals, and training on what was recorded."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.cli.record import record
from console.main import run
from pbkv.control.client import ControlClient
from pbkv.errors import Unreachable
from pbkv.recorder import Recorder
from pbkv.workflow import Workflow
from tests.console.cli import pbkv, refused
from tests.support.control import ControlServer
from tests.support.server import wait_for

Out = pytest.CaptureFixture[str]


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer() as server:
        yield server


def play(recorder: Recorder, count: int, first: int = 1) -> None:
    """Runs a, then one to three b as a's reply says, then c."""
    for number in range(first, first + count):
        life, length = Workflow(f"run {number}", number, 0.0), number % 3 + 1
        for step, agent in enumerate(["a", *"b" * length, "c"]):
            life.calls += 1
            text = bytes(100 * (i == length) for i in range(128))
            recorder.call(life, agent, step, 5, bytes([1] * 128), text)
        recorder.ended(life, "final")


def numbers(path: Path) -> list[int]:
    return [row["n"] for line in path.read_text().splitlines() if "n" in (row := json.loads(line))]


def test_what_was_recorded_can_be_trained_on(server: ControlServer, tmp_path: Path, capsys: Out) -> None:
    recorder = server.backend.recorder = Recorder("ids 100")
    play(recorder, 60)
    path = tmp_path / "rows.jsonl"
    assert run(["train", "--record", server.url, "-o", str(path), "--seconds", "0.1"]) == 0
    said = capsys.readouterr()
    assert said.out == "" and "text signals: ids 100" in said.err and "300 rows written" in said.err
    assert run(["train", str(path), "-o", str(tmp_path / "p"), "--epochs", "2"]) == 0
    config = json.loads((tmp_path / "p" / "config.json").read_text())
    assert (config["signal"], config["text_dim"], config["agents"]) == ("ids 100", 128, ["a", "b", "c"])
    assert run(["eval", str(tmp_path / "p"), str(path)]) == 0


def test_a_recording_that_is_killed_goes_on_without_a_gap(server: ControlServer, tmp_path: Path) -> None:
    recorder, path = server.backend.recorder, tmp_path / "rows.jsonl"
    play(recorder, 100)
    command = [sys.executable, "-m", "console.main", "train", "--record", server.url, "-o", str(path)]
    for round_ in (1, 2):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            last = recorder._last
            wait_for(lambda last=last: path.exists() and path.stat().st_size and f'"n": {last},' in path.read_text(), 60)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        play(recorder, 100, 1 + 100 * round_)
    with path.open("a") as stream:
        stream.write('{"n": 77')  # as if the kill had come in the middle of a line
    assert pbkv("train", "--record", server.url, "-o", str(path), "--seconds", "0.1").status == 0
    assert numbers(path) == list(range(1, recorder._last + 1))


def test_a_server_that_goes_away_is_waited_for(tmp_path: Path, capsys: Out) -> None:
    """And what its successor has is a recording of its own."""
    path, now = tmp_path / "rows.jsonl", 0.0
    first = ControlServer()
    successor: list[ControlServer] = []

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now == 1:
            first.stop()
        if now == 3:
            successor.append(ControlServer(port=first.port))
            play(successor[0].backend.recorder, 2)
            successor[0].__enter__()

    with first:
        play(first.backend.recorder, 1)
        written = record(ControlClient(first.url), path, seconds=4, max_bytes=1 << 20, clock=lambda: now, pause=pause)
    successor[0].stop()
    assert written == len(numbers(path)) == 5 + 11
    assert capsys.readouterr().err.count("trying again") == 2
    with pytest.raises(Unreachable):
        record(ControlClient(first.url), tmp_path / "more.jsonl", seconds=1, max_bytes=1 << 20)


def test_rows_that_came_too_late_are_told(server: ControlServer, tmp_path: Path, capsys: Out) -> None:
    recorder = server.backend.recorder
    recorder._rows = type(recorder._rows)(maxlen=10)
    play(recorder, 5)
    assert run(["train", "--record", server.url, "-o", str(tmp_path / "r.jsonl"), "--seconds", "0.1"]) == 0
    assert "rows were gone before they could be fetched" in capsys.readouterr().err


@pytest.mark.parametrize(("args", "words"), [
    (["--record", "localhost:1", "-o", "r.jsonl"], "expected http://HOST:PORT"),
    (["--record", "http://127.0.0.1:1", "-o", "folder"], "a recording is a .jsonl file"),
    (["--record", "http://127.0.0.1:1", "-o", "r.jsonl", "--seconds", "0"], "--seconds 0"),
    (["--record", "http://127.0.0.1:1", "-o", "r.jsonl", "--seconds", "nan"], "--seconds nan"),
    (["--record", "http://127.0.0.1:1", "-o", "r.jsonl", "--max-bytes", "1"], "--max-bytes"),
    (["--record", "http://127.0.0.1:1", "-o", "r.jsonl", "traces"], "record first, then train"),
    (["-o", "p"], "nothing to learn from was named"),
])
def test_refusals_are_one_sentence(args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    refused(pbkv("train", *args), words)


def test_a_token_is_needed_where_the_server_has_one(tmp_path: Path) -> None:
    with ControlServer(token="secret") as server:
        refused(pbkv("train", "--record", server.url, "-o", str(tmp_path / "r.jsonl")), "authorization")
        (tmp_path / "token").write_text("secret\n")
        rows, token = str(tmp_path / "r.jsonl"), str(tmp_path / "token")
        done = pbkv("train", "--record", server.url, "-o", rows, "--seconds", "0.1", "--token-file", token)
        assert done.status == 0
