"""`pbkv serve -- FLAGS` up to where SGLang would be started: what it sets, what it refuses, and each in one sentence."""

import json
import os
import shlex
import socket
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from console.cli import serve_sglang
from console.main import run
from pbkv.sglang import compat
from tests.console.cli import pbkv, refused

MODEL = ("--model-path", "org/model")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("SGLANG_")] + ["PBKV_CONFIG"]:
        monkeypatch.delenv(name, raising=False)


def dry(capsys: pytest.CaptureFixture[str], port: int, *args: str, before: tuple[str, ...] = ()) -> tuple[list[str], str]:
    """(the words of the command, what was said) of a dry run."""
    assert run(["serve", "--dry-run", *before, "--", *MODEL, "--port", str(port), *args]) == 0
    out, err = capsys.readouterr()
    assert len(out.strip().splitlines()) == 1
    return shlex.split(out), err


def test_a_dry_run_prints_the_command_and_explains_each_setting(capsys: pytest.CaptureFixture[str], port: int, tmp_path: Path) -> None:
    settings = tmp_path / "a b.json"
    settings.write_text(json.dumps({"server": "gpu-7"}))
    command, said = dry(capsys, port, "--hicache-ratio", "2", "--tp", "2", before=("--pbkv-config", str(settings)))
    assert command[:2] == ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND=python", f"PBKV_CONFIG={settings}"]
    assert command[3:5] == ["-m", "sglang.launch_server"]
    ours = ["--radix-cache-backend", "pbkv", "--enable-metrics", "--enable-cache-report", "--enable-hierarchical-cache"]
    assert command[5:] == [*ours, *MODEL, "--port", str(port), "--hicache-ratio", "2", "--tp", "2"]
    lines = said.splitlines()
    assert lines[0] == "pbkv serve sets"
    assert len(lines) == 7
    assert any(line.split()[:2] == ["--enable-hierarchical-cache", "a"] for line in lines)


def test_what_was_set_is_not_set_again(capsys: pytest.CaptureFixture[str], port: int) -> None:
    command, said = dry(capsys, port, "--radix-cache-backend=pbkv", "--enable-metrics", "--enable-cache-report", "--enable-hicache")
    assert sum("--enable-metrics" in word for word in command) == 1
    assert "--enable-metrics" not in said and "note:" not in said


def test_without_a_host_tier_it_says_what_is_lost(capsys: pytest.CaptureFixture[str], port: int) -> None:
    assert "note: there is no host tier" in dry(capsys, port)[1]


def test_the_server_takes_the_place_of_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], port: int) -> None:
    started: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(serve_sglang.os, "execve", lambda *args: started.append(args))
    monkeypatch.setenv("KEPT", "yes")
    assert run(["serve", "--", *MODEL, "--port", str(port)]) == 0
    ((path, command, environment),) = started
    assert (path, command[1:3]) == (command[0], ["-m", "sglang.launch_server"])
    assert environment["KEPT"] == "yes" and environment["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] == "python"
    assert "pbkv serve sets" in capsys.readouterr().err


def one_sentence(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert run(["serve", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) == 1, err
    return err


@pytest.mark.parametrize(("args", "says"), [
    ((), "expected --embedded, or -- and SGLang's flags"),
    (("--dry-run",), "expected --embedded, or -- and SGLang's flags"),
    (("--", "--tp", "2"), "--model-path is missing"),
    (("--", "--model-path"), "--model-path is missing"),
    (("--port", "30001", "--", *MODEL), "--port belongs to --embedded"),
    (("--json", "--", *MODEL), "--json belongs to --embedded"),
    (("--embedded", "--", *MODEL), "do not go with --embedded"),
    (("--embedded", "--dry-run"), "do not go with --embedded"),
    (("--", *MODEL, "--radix-cache-backend", "flexkv"), "--radix-cache-backend flexkv does not go with the pbkv cache"),
    (("--", *MODEL, "--disable-radix-cache"), "--disable-radix-cache does not go with the pbkv cache"),
    (("--", *MODEL, "--enable-session-radix-cache"), "session_lae"),
    (("--", *MODEL, "--disaggregation-mode", "prefill"), "--disaggregation-mode prefill"),
    (("--", *MODEL, "--speculative-algorithm", "NGRAM"), "--speculative-algorithm NGRAM"),
    (("--", *MODEL, "--tokenizer-worker-num", "2"), "--tokenizer-worker-num 2"),
    (("--", *MODEL, "--pp", "2"), "--pp-size 2"),
    (("--", *MODEL, "--port", "0"), "--port 0: expected a whole number from 1 to 65535"),
    (("--", *MODEL, "--host", "0.0.0.0"), "--host 0.0.0.0 is not loopback: set token_file"),
    (("--", *MODEL, "--config", "/no/such"), "--config /no/such"),
    (("--pbkv-config", "/no/such", "--", *MODEL), "settings file '/no/such': No such file or directory"),
    (("--", *MODEL, "--pbkv-config", "/no/such"), "settings file '/no/such': No such file or directory"),
])
def test_what_cannot_work_is_one_sentence_and_exit_2(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], says: str) -> None:
    assert says in one_sentence(capsys, *args)


@pytest.mark.parametrize(("config", "says"), [
    ({"architectures": ["GptOssForCausalLM"]}, "add --disable-hybrid-swa-memory"), ({"model_type": "mamba2"}, "recurrent state"),
])
def test_kinds_of_models_that_are_not_served(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, port: int, config: dict[str, Any], says: str,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    flags = ("--model-path", str(tmp_path), "--port", str(port))
    assert says in one_sentence(capsys, "--", *flags)
    status = run(["serve", "--dry-run", "--", *flags, "--disable-hybrid-swa-memory"])
    assert status == (0 if "architectures" in config else 2)


@pytest.mark.parametrize(("name", "value", "says"), [
    ("SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND", "rust", "compiled in"), ("SGLANG_RUST_SERVER", "1", "SGLANG_RUST_SERVER=1"),
    ("SGLANG_PLUGINS", "other", "leaves the plugin out"), ("PBKV_CONFIG", "/no/such", "settings file '/no/such'"),
])
def test_the_environment_counts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert says in one_sentence(capsys, "--", *MODEL)


@pytest.mark.parametrize("what", ["--port", "events", "replay"])
def test_ports_that_are_taken(capsys: pytest.CaptureFixture[str], tmp_path: Path, port: int, what: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        taken = listener.getsockname()[1]
        settings = tmp_path / "pbkv.json"
        settings.write_text(json.dumps({} if what == "--port" else {what: f"tcp://127.0.0.1:{taken}"}))
        http = taken if what == "--port" else port
        said = one_sentence(capsys, "--pbkv-config", str(settings), "--", *MODEL, "--port", str(http))
    assert what in said and str(taken) in said and "in use" in said


def test_sglang_that_is_missing_or_another(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "version", lambda name: "0.6.0")
    assert "sglang 0.6.0 is installed; this plugin is written for" in one_sentence(capsys, "--", *MODEL)

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(compat, "version", missing)
    assert "sglang is not installed" in one_sentence(capsys, "--", *MODEL)


def test_a_plugin_that_sglang_would_not_find(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_sglang, "entry_points", lambda group: [])
    assert "not installed where SGLang looks for plugins" in one_sentence(capsys, "--", *MODEL)


def test_as_a_process() -> None:
    refused(pbkv("serve", "--", *MODEL, "--use-ray"), "--use-ray does not go with the pbkv cache")


def test_the_checks_load_neither_torch_nor_sglang() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from console.main import run; run(['serve', '--dry-run', '--', '--model-path', 'm', '--disable-radix-cache']);"
        "import console.cli.serve_sglang; print({'torch', 'sglang', 'numpy', 'zmq'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
