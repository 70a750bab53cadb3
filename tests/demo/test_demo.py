"""`pbkv demo` as people start it: the whole flow with the embedded engine, and that nothing is left behind however it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.client import open as open_source
from pbkv.events.schema import EVENT_KINDS
from pbkv.workloads.catalog import WORKLOADS
from tests.support.processes import until, using
from tests.support.tmux import Tmux

#: Longest a demo may take to come up on a busy machine, s; SGLang alone may take minutes.
START_S = 600.0


@pytest.fixture
def leftovers(state_dir: Path) -> Iterator[Path]:
    """The state folder; whatever a failed test left running is ended."""
    yield state_dir
    for pid in using(state_dir):
        os.kill(pid, signal.SIGKILL)


def demo(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "console.main", "demo", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )


def headless(seconds: int, *args: str) -> tuple[dict[str, Any], str]:
    """Summary and messages of a headless run that has to be good."""
    with demo("--headless", "--seconds", str(seconds), "--json", *args) as process:
        out, err = process.communicate(timeout=START_S + seconds + 120)
    assert process.returncode == 0, err
    summary = json.loads(out)
    assert tuple(summary["events"]) == EVENT_KINDS
    assert all(summary["events"].values()), summary
    assert (summary["gaps"], summary["knob_changes"]) == (0, 1)
    assert summary["retired_tokens"] > 0
    assert summary["prefetches_issued"] > 0
    assert 0 < summary["hit_rate"]["device"] < 1
    assert 0 < summary["hit_rate"]["host"] < 1
    return summary, err


def run_dir(state_dir: Path) -> Path:
    return next((state_dir / "demo").iterdir())


def started(state_dir: Path, part: str) -> bool:
    return any((state_dir / "demo").glob(f"*/{part}.log"))


def test_half_a_minute_shows_everything_and_leaves_nothing(leftovers: Path, tmp_path: Path) -> None:
    db = tmp_path / "kept.duckdb"
    _, err = headless(20, "--db", str(db))
    step = int(re.search(r"gamma set to 0.7, in effect at step (\d+)", err).group(1))  # pyright: ignore[reportOptionalMemberAccess]
    until(lambda: not using(leftovers), "every process has ended")
    with open_source(str(db)) as reader:
        knobs = reader.sql("SELECT name, old, new, actor, reason, sched_step FROM knob").to_pylist()
        decisions = reader.sql("SELECT DISTINCT decision FROM eviction").to_pylist()
    at = knobs[0].pop("sched_step")
    assert knobs == [{"name": "gamma", "old": "0.8", "new": "0.7", "actor": "demo", "reason": "demo"}]
    assert at == step, "the log and the answer name the same step"
    assert {d["decision"] for d in decisions} == {"retired", "scored", "tie"}


@pytest.mark.parametrize("workload", [name for name in WORKLOADS if name != "hover"])
def test_every_other_workload_shows_everything_too(leftovers: Path, workload: str) -> None:
    headless(20, "--workload", workload)


@pytest.mark.server
def test_sglang_shows_everything_too(leftovers: Path) -> None:
    headless(60, "--engine", "sglang")
    until(lambda: not using(leftovers), "every process has ended")
    assert "leak" not in (run_dir(leftovers) / "server.log").read_text().lower()


@pytest.mark.parametrize("part", ["server", "driver"])
def test_interrupt_leaves_no_process(leftovers: Path, part: str) -> None:
    with demo("--headless", "--seconds", "60") as process:
        until(lambda: started(leftovers, part), f"{part} was started", START_S)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    until(lambda: not using(leftovers), "every process has ended")
    database = run_dir(leftovers) / "events.duckdb"
    if database.exists():
        with open_source(str(database)) as reader:
            assert reader.status()["gaps"] == 0


def test_page_is_served_until_interrupted(leftovers: Path) -> None:
    with demo("--web") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    until(lambda: not using(leftovers), "every process has ended")
    with open_source(str(run_dir(leftovers) / "events.duckdb")) as reader:
        assert reader.status()["gaps"] == 0


@pytest.mark.tmux
def test_terminal_app_and_a_server_that_dies_under_it(leftovers: Path) -> None:
    command = [sys.executable, "-m", "console.main", "demo"]
    with Tmux(command, 120, 40, {"PBKV_STATE_DIR": str(leftovers)}) as terminal:
        screen = terminal.until(lambda screen: "gamma" in screen and "hover-0-" in screen)
        assert "embedded" in screen
        for pid in using(leftovers):
            if b"--embedded" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        terminal.keys("q")
        screen = terminal.until("EXIT-1")
    assert "server was ended by SIGKILL; the end of" in screen.replace("\n", "")
    until(lambda: using(leftovers) == [], "every process has ended")
    with open_source(str(run_dir(leftovers) / "events.duckdb")) as reader:
        assert reader.status()["rows"] is not None
