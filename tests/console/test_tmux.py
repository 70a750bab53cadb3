"""`pbkv top` in a real terminal, and `pbkv collect` as a process: what people see and what stays behind."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.console.test_app import TITLES
from tests.support.control import ControlServer, MemoryBackend
from tests.support.ports import free_port
from tests.support.stream import LiveProducer, fill
from tests.support.tmux import Tmux

PBKV = [sys.executable, "-m", "console.main"]
NUMBERS = ("TTFT p50", "p95", "+1", "+8", "retired", "device→", "used", "skipped", "idle link", "gamma", "64.0 MiB")
SIZES = [(80, 24), (160, 48)]

pytestmark = pytest.mark.tmux


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("tmux") / "fill.duckdb"
    fill(path, seconds=30, seed=5)
    return str(path)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_whole_screen(db: str, width: int, height: int) -> None:
    with ControlServer() as server, Tmux([*PBKV, "top", db, "--server", server.url], width, height) as terminal:
        screen = terminal.until(lambda s: "v1 @0" in s and "✓" in s and "wf-" in s and "what-if" in s)
        for title in TITLES:
            assert title in screen
        for word in NUMBERS:
            assert word in screen, word
        assert re.search(r"device +\d+% ", screen) and re.search(r"\+1 +\d+% ", screen)
        lines = screen.rstrip().splitlines()
        assert len(lines) >= height - 1, screen
        assert lines[0].split()[:3] == ["■", "RECORDED", "synthetic-0"]
        assert lines[-1].startswith("? help q quit space pause")
        assert all(len(line) <= width for line in lines)
        terminal.keys("q")
        terminal.until("EXIT-0")


def test_a_knob_is_changed_from_the_keyboard(db: str) -> None:
    with ControlServer() as server, Tmux([*PBKV, "top", db, "--server", server.url], 80, 24) as terminal:
        terminal.until("v1 @0")
        terminal.keys("7", "Down", "Enter")
        terminal.until("a whole number from 1 to 8")
        terminal.keys("9")
        terminal.until("knob k = 9: expected")
        # One at a time, as a person types: Textual lets a character overtake a backspace sent in the same instant.
        terminal.keys("BSpace")
        terminal.until("knob k = '': expected")
        terminal.keys("6")
        terminal.until(lambda s: "knob k" not in s)
        terminal.keys("Enter")
        terminal.until(lambda s: f"v2 @{server.backend.set.step}" in s)
        assert server.backend.set["k"] == 6
        terminal.keys("q")
        terminal.until("EXIT-0")


def test_ctrl_c_leaves(db: str) -> None:
    with Tmux([*PBKV, "top", db], 80, 24) as terminal:
        terminal.until("1 Cache")
        terminal.keys("C-c")
        screen = terminal.until(lambda s: "EXIT-" in s or "quit" in s.splitlines()[-3:][0])
        if "EXIT-" not in screen:
            terminal.keys("q")
        assert "Traceback" not in terminal.until("EXIT-")


@pytest.fixture
def live(state_dir: Path) -> Iterator[tuple[ControlServer, LiveProducer]]:
    backend = MemoryBackend()
    with ControlServer(backend=backend) as control, LiveProducer(control_url=control.url) as producer:
        backend.extra = {"events": producer.endpoint, "replay": producer.replay_endpoint}
        yield control, producer


def collect(control: ControlServer, db: Path, port: int) -> subprocess.Popen[str]:
    command = [*PBKV, "collect", "--server", control.url, "--db", str(db), "--listen", f"127.0.0.1:{port}", "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stopped(process: subprocess.Popen[str], number: int) -> tuple[str, str]:
    process.send_signal(number)
    return process.communicate(timeout=60)


def test_the_app_outlives_its_collector_and_needs_none_to_start(live: tuple[ControlServer, LiveProducer], tmp_path: Path) -> None:
    control, _ = live
    port = free_port()
    env = {"PBKV_STATE_DIR": os.environ["PBKV_STATE_DIR"]}
    with Tmux([*PBKV, "top", f"grpc://127.0.0.1:{port}"], 80, 24, env) as terminal:
        terminal.until(lambda s: "NO DATA" in s and "retrying" in s)
        first = collect(control, tmp_path / "live.duckdb", port)
        try:
            terminal.until(lambda s: "● LIVE" in s and "wf-" in s and "v1 @" in s)
        finally:
            out, err = stopped(first, signal.SIGINT)
        assert first.returncode == 130, err
        assert json.loads(out.splitlines()[0])["source"] == f"grpc://127.0.0.1:{port}"
        assert json.loads(out.splitlines()[-1])["lost"] == 0
        assert "Traceback" not in err
        terminal.until(lambda s: "✗ LOST" in s and "retrying" in s and "1 Cache" in s)
        second = collect(control, tmp_path / "live.duckdb", port)
        try:
            terminal.until("● LIVE")
        finally:
            stopped(second, signal.SIGTERM)
        assert second.returncode == 0
        terminal.keys("q")
        terminal.until("EXIT-0")
    with duckdb.connect(str(tmp_path / "live.duckdb"), read_only=True) as connection:
        row = connection.execute("SELECT count(*) FROM raw.batch").fetchone()
        assert row is not None and row[0] > 0
    assert not list(tmp_path.glob("*.wal"))
