"""What a forecast process loads in tests: generated traffic, a gate that opens when the test says so, and things that go wrong.

All of it goes to that process by pickle.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from pbkv.engine.settings import EngineSettings
from pbkv.errors import UsageError
from pbkv.whatif.forecast import Refused
from pbkv.whatif.from_workload import recording_of
from pbkv.whatif.question import Loaded
from pbkv.workloads.hover_like import HoverLike


@dataclass(frozen=True)
class Generated:
    """A workload at a small pool. Appends a line per read to `log`, and reads `gate` (a FIFO) to its end before it goes on."""

    workflows: int = 12
    device_tokens: int = 60_000
    host_tokens: int = 120_000
    live: bool = False
    log: str = ""
    gate: str = ""

    def __call__(self, span_s: float, most: int) -> Loaded:
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{span_s:g} {most}\n")
        if self.gate:
            Path(self.gate).read_bytes()
        engine = EngineSettings(page_size=64, device_tokens=self.device_tokens, host_tokens=self.host_tokens, max_running=8)
        recording = recording_of(HoverLike(), engine, workflows=self.workflows, concurrency=6, seed=3)
        return Loaded(recording, span_s, "2026-03-01T12:00:00", max(0, recording.calls - most), self.live)


def refuse(span_s: float, most: int) -> Loaded:
    """A source that cannot be replayed."""
    raise UsageError(f"the log of the last {span_s:g} s has no calls; record for longer, or take a wider window")


def fail(span_s: float, most: int) -> Loaded:
    """A fault."""
    raise ZeroDivisionError("of the loader")


def die(span_s: float, most: int) -> Loaded:
    """The process ends, as when the machine runs out of memory."""
    os._exit(9)


def die_loudly(span_s: float, most: int) -> Loaded:
    """The process ends and says why."""
    os.write(2, b"first\nout of memory\n")
    os._exit(9)


def refused(span_s: float, most: int) -> Loaded:
    """A log that is there and cannot be trusted."""
    raise Refused("12 messages of the window were lost; ask about a window without losses")
