"""Run folders: unique, few, and never taken from a run that is on."""

import os
from pathlib import Path

import pytest

from console.demo.rundir import KEPT_RUNS, new_run

DEAD = 2**22 + 1  # above the largest process id Linux gives


def test_folder_is_made_below_the_state_folder(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "state")
    assert folder.parent == tmp_path / "state" / "demo"
    assert folder.is_dir()
    assert folder.name.endswith(f"-{os.getpid()}")


def test_oldest_finished_runs_go(tmp_path: Path) -> None:
    runs = tmp_path / "demo"
    for day in range(1, 9):
        (runs / f"2026010{day}-000000-{DEAD}").mkdir(parents=True)
    new = new_run(tmp_path)
    left = sorted(f.name for f in runs.iterdir())
    assert left == [f"2026010{day}-000000-{DEAD}" for day in range(8 - KEPT_RUNS + 2, 9)] + [new.name]


def test_a_run_that_is_on_stays_however_old(tmp_path: Path) -> None:
    mine = tmp_path / "demo" / f"20200101-000000-{os.getppid()}"
    mine.mkdir(parents=True)
    for day in range(1, 9):
        (tmp_path / "demo" / f"2026010{day}-000000-{DEAD}").mkdir()
    new_run(tmp_path)
    assert mine.is_dir()


def test_state_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(NotADirectoryError):
        new_run(tmp_path / "state")
