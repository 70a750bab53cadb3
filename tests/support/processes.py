"""Which processes a test's commands have left, found by the state folder in their environment."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def using(state_dir: Path) -> list[int]:
    """Ids of running processes (not zombies, not this one) that were started with that state folder."""
    marker = f"PBKV_STATE_DIR={state_dir}".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker in (entry / "environ").read_bytes().split(b"\0") and not gone(int(entry.name)):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Poll until `condition()`; fails the test when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)
