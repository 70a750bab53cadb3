"""Folders of the demo below the state folder: the cached model, and one folder per run with its logs and events."""

import os
import shutil
import time
from pathlib import Path

#: Runs kept for a look afterwards; older ones are removed when a new one starts.
KEPT_RUNS = 5


def new_run(state: Path) -> Path:
    """A fresh folder for this run; removes the oldest runs that are over."""
    runs = state / "demo"
    runs.mkdir(parents=True, exist_ok=True)
    _prune(runs)
    folder = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir()
    return folder


def _prune(runs: Path) -> None:
    over = sorted(f for f in runs.iterdir() if f.is_dir() and not _running(f))
    for folder in over[: max(0, len(over) - KEPT_RUNS + 1)]:
        shutil.rmtree(folder, ignore_errors=True)


def _running(folder: Path) -> bool:
    # The name ends in the id of the process that made it.
    pid = folder.name.rpartition("-")[2]
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
