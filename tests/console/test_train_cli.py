"""`pbkv train` and `pbkv eval` as users run them: files in, a folder out, figures, refusals, and a kill in between."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from console.main import run
from tests.console.cli import pbkv, refused

Out = pytest.CaptureFixture[str]


def table(file: Path, runs: int, *, texts: bool = True) -> str:
    """Runs a, then one to three b as a's text says, then c."""
    rows = []
    for n in range(runs):
        length = n % 3 + 1
        for step, agent in enumerate(["a", *"b" * length, "c"]):
            row = {"workflow": f"run {n}", "step": step, "agent": agent, "output_tokens": 5}
            rows.append(row | ({"text_hash": [127 * (i == length) for i in range(128)]} if texts else {}))
    pq.write_table(pa.Table.from_pylist(rows), file)
    return str(file)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> str:
    return table(tmp_path_factory.mktemp("traces") / "runs.parquet", 60)


@pytest.fixture(scope="module")
def trained(traces: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "p"
    assert run(["train", traces, "-o", str(folder), "--epochs", "2"]) == 0
    return folder


def test_training_writes_a_predictor_and_its_figures(trained: Path) -> None:
    assert sorted(f.name for f in trained.iterdir()) == ["config.json", "weights.safetensors"]
    config = json.loads((trained / "config.json").read_text())
    assert config["agents"] == ["a", "b", "c"]
    assert len(config["data"]) == 64 and config["runs"] == [45, 8, 7]
    assert config["test"]["runs"] == 7
    assert {"n", "accuracy", "nll", "brier", "ece"} == config["test"]["reply"][0].keys()
    assert str(trained) not in json.dumps(config)


def test_progress_is_on_stderr_and_nothing_on_stdout(traces: str, tmp_path: Path, capsys: Out) -> None:
    assert run(["train", traces, "-o", str(tmp_path / "p"), "--epochs", "1"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "60 runs, 240 calls, 3 agents" in said.err
    assert "epoch 1 of at most 1: validation loss" in said.err


def test_figures_as_json_and_as_a_table(trained: Path, traces: str, capsys: Out) -> None:
    assert run(["eval", str(trained), traces, "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["predictor"] == "graphsage" and found["runs"] == 60
    assert len(found["prefill"]) == 5 and found["reply"][0]["n"] == 240
    assert "used in training" in said.err
    assert run(["eval", str(trained), traces]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["moment", "step", "n", "accuracy", "nll", "brier", "ece"]
    assert len(lines) == 11


def test_other_runs_are_judged_without_a_word(trained: Path, tmp_path: Path, capsys: Out) -> None:
    assert run(["eval", str(trained), table(tmp_path / "other.parquet", 12, texts=False), "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_the_chain_of_order_n(traces: str, tmp_path: Path, capsys: Out) -> None:
    assert run(["train", traces, "-o", str(tmp_path / "m"), "--predictor", "markov", "--order", "2"]) == 0
    capsys.readouterr()
    assert run(["eval", str(tmp_path / "m"), traces, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["predictor"] == "markov" and "reply" not in found
    assert found["prefill"][0]["accuracy"] > 0.7


def test_the_online_chain_and_the_mixture_learn_as_they_go(trained: Path, traces: str, capsys: Out) -> None:
    for arguments in (["online", traces], [str(trained), traces, "--mixed"]):
        assert run(["eval", *arguments, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["prefill"][0]["accuracy"] > 0.6


def test_the_same_seed_gives_the_same_files(trained: Path, traces: str, tmp_path: Path) -> None:
    assert run(["train", traces, "-o", str(tmp_path / "p"), "--epochs", "2"]) == 0
    for name in ("config.json", "weights.safetensors"):
        assert (tmp_path / "p" / name).read_bytes() == (trained / name).read_bytes()


def test_a_killed_training_goes_on_and_ends_the_same(trained: Path, traces: str, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    command = [sys.executable, "-m", "console.main", "train", traces, "-o", str(folder), "--epochs", "2"]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert first.stderr is not None
    for line in first.stderr:
        if "epoch 1" in line:
            os.kill(first.pid, signal.SIGKILL)
            break
    first.wait()
    first.stderr.close()
    again = pbkv(*command[3:])
    assert again.status == 0
    # The kill may come when all is done already; then the second run simply starts anew.
    assert (folder / "weights.safetensors").read_bytes() == (trained / "weights.safetensors").read_bytes()
    assert sorted(f.name for f in folder.iterdir() if not f.name.endswith(".part")) == ["config.json", "weights.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--predictor", "lstm"], ("lstm", "graphsage")), (["--predictor", "markov", "--order", "99"], ("--order 99", "1 to 8")),
        (["--epochs", "0"], ("--epochs 0",)), (["--threads", "1000"], ("--threads 1000",)), (["--seed", "-1"], ("--seed -1",)),
    ],
)
def test_settings_out_of_range(arguments: list[str], words: tuple[str, ...], traces: str, tmp_path: Path) -> None:
    refused(pbkv("train", traces, "-o", str(tmp_path / "p"), *arguments), *words)


def test_traces_that_cannot_be_learned_from(tmp_path: Path) -> None:
    refused(pbkv("train", str(tmp_path / "none.parquet"), "-o", str(tmp_path / "p")), "does not exist")
    refused(pbkv("train", table(tmp_path / "few.parquet", 3), "-o", str(tmp_path / "p")), "3 runs", "at least 8")
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    refused(pbkv("train", str(tmp_path / "bad.parquet"), "-o", str(tmp_path / "p")), "bad.parquet")
    assert not (tmp_path / "p").exists()


def test_predictors_that_are_none(traces: str, tmp_path: Path) -> None:
    refused(pbkv("eval", str(tmp_path), traces), "config.json")
    refused(pbkv("eval", "online", traces, "--mixed"), "--mixed")


def test_a_folder_that_cannot_be_made(traces: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = pbkv("train", traces, "-o", str(tmp_path / "file" / "p"), "--epochs", "1")
    assert done.status == 1 and "cannot be written" in done.err.splitlines()[-1] and "Traceback" not in done.err


def test_evaluating_needs_no_torch(trained: Path, traces: str) -> None:
    """A server without torch can serve what another machine trained."""
    script = (
        "import sys; sys.modules['torch'] = None; sys.modules['torch_geometric'] = None\n"
        f"from console.main import run; sys.exit(run(['eval', {str(trained)!r}, {traces!r}, '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"] == 60
