"""Options of `pbkv demo`, and what is refused before anything is started."""

import subprocess
import sys
from pathlib import Path

import pytest

from console.demo.engines import ENGINES, driver_command, engine_command
from console.demo.settings import KNOBS, SIZES, TRACE, Ports, Settings
from console.demo.stack import Stack
from console.main import run
from pbkv.config import parse_config
from pbkv.knobs import parse_changes
from pbkv.workloads.catalog import WORKLOADS


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--engine", "vllm"], "--engine 'vllm': no such engine; expected embedded or sglang"),
        (["--headless", "--workload", "chess"], "workload 'chess': no such workload; expected one of hover, swebench, financebench"),
        (["--headless", "--web"], "--headless and --web: expected one of them"),
        (["--headless", "--seconds", "0"], "--seconds 0: expected 1 to 86400"),
        (["--headless", "--seconds", "x"], "--seconds"),
        (["--web", "--json"], "--json: only with --headless"),
        (["--headless", "--trace", "/no/such/folder"], "trace '/no/such/folder' does not exist"),
        (["--headless", "--db", "/no/such/folder/e.duckdb"], "folder '/no/such/folder' does not exist"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_2(args: list[str], says: str, capsys: pytest.CaptureFixture[str], state_dir: Path) -> None:
    assert run(["demo", *args]) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""
    assert not state_dir.exists(), "nothing was started or written"


def test_terminal_app_needs_a_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "console.main", "demo"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip() == "demo: the terminal app needs a terminal; use --web or --headless"


def test_state_folder_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PBKV_STATE_DIR", str(tmp_path / "file"))
    assert run(["demo", "--headless"]) == 2
    assert "PBKV_STATE_DIR" in capsys.readouterr().err


def settings(tmp_path: Path, engine: str = "embedded", trace: Path | None = None) -> Settings:
    return Settings(tmp_path, tmp_path / "state", tmp_path / "e.duckdb", engine, trace=trace)


def test_ports_are_all_different() -> None:
    ports = Ports.choose()
    assert len({ports.http, ports.events, ports.replay, ports.flight, ports.web}) == 5


@pytest.mark.parametrize("engine", ENGINES)
def test_settings_are_ones_the_engine_takes(tmp_path: Path, engine: str) -> None:
    config = parse_config(settings(tmp_path, engine).config(), "demo")
    assert config.control_url.startswith("http://127.0.0.1:")
    assert parse_changes(KNOBS).items() <= config.knob_values().items()


def test_sglang_gets_the_plugin_its_settings_and_hicache(tmp_path: Path) -> None:
    argv, env = engine_command(settings(tmp_path, "sglang"))
    assert argv[argv.index("--radix-cache-backend") + 1] == "pbkv"
    assert "--enable-hierarchical-cache" in argv
    assert env is not None
    assert env["PBKV_CONFIG"] == str(tmp_path / "pbkv.json")
    assert Path(env["PBKV_CONFIG"]).is_file()


def test_embedded_engine_is_the_default_and_needs_nothing_of_sglang(tmp_path: Path) -> None:
    assert ENGINES[0] == "embedded"
    argv, env = engine_command(settings(tmp_path))
    assert env is None
    assert argv[1:5] == ["-m", "console.main", "serve", "--embedded"]
    assert Path(argv[argv.index("--config") + 1]).is_file()


@pytest.mark.parametrize("engine", ENGINES)
def test_every_workload_has_its_load(tmp_path: Path, engine: str) -> None:
    assert set(SIZES[engine].concurrency) == {*WORKLOADS, TRACE}
    assert SIZES[engine].host_tokens > SIZES[engine].device_tokens > SIZES[engine].context


def test_trace_takes_the_place_of_the_workload(tmp_path: Path) -> None:
    assert "--workload" in driver_command(settings(tmp_path))
    argv = driver_command(settings(tmp_path, trace=Path("talks")))
    assert argv[argv.index("--trace") + 1] == "talks"
    assert "--workload" not in argv


def test_a_collector_token_of_the_users_does_not_reach_the_demos_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PBKV_COLLECTOR_TOKEN", "of another collector")
    environment = Stack(settings(tmp_path)).environment()
    assert "PBKV_COLLECTOR_TOKEN" not in environment
    assert environment["PBKV_STATE_DIR"] == str(tmp_path / "state")
