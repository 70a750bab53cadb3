"""A store with a run of the embedded engine in it, in virtual time: everything a forecast needs."""

from pathlib import Path

from pbkv.workloads.hover_like import HoverLike
from tests.whatif.runs import make_engine, run_play


def played(path: Path, workflows: int = 30) -> Path:
    """About twelve calls per workflow, some ten seconds apart, in pools that hold half of what is kept alive."""
    engine = make_engine({"page_size": 64, "device_tokens": 60_032, "host_tokens": 120_064}, {})
    return run_play(engine, HoverLike(), workflows=workflows, concurrency=8).store(path)
