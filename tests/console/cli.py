"""Runs `pbkv` as users do: a process of its own."""

import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


def pbkv(*args: str, timeout: float = 120) -> Done:
    """One command line, finished."""
    run = subprocess.run([sys.executable, "-m", "console.main", *args], capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL)
    return Done(run.returncode, run.stdout.decode(errors="replace"), run.stderr.decode(errors="replace"))


def refused(done: Done, *words: str, status: int = 2) -> None:
    """Asserts one sentence on stderr, nothing on stdout, no traceback."""
    assert done.status == status, done
    assert done.out == ""
    assert len(done.err.strip().splitlines()) == 1, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err, done.err
