"""How replaying grows: time from 5,000 to 500,000 calls, and peak memory of 10 million references to pages. Parts of `bench_replay`.

Each figure is taken in a process of its own. Growth: HoVer-like workflows, 96 at a time, pages of 64, a pool for about half of what they
keep alive; CPU seconds of the replay, without making the workflows. Memory: the process from its start, making the recording included.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from pbkv.engine.settings import EngineSettings
from pbkv.whatif.account import call_blocks
from pbkv.whatif.from_workload import recording_of
from pbkv.whatif.hitrates import replay_cache
from pbkv.whatif.order import in_order, order_of
from pbkv.whatif.recording import Recording
from pbkv.whatif.replay import replay
from pbkv.whatif.setting import Setting
from pbkv.whatif.stack import lru_hits
from pbkv.workloads.hover_like import HoverLike

GROWTH, QUICK_GROWTH = (5_000, 50_000, 500_000), (500, 5_000)
REFS, QUICK_REFS = 10_000_000, 1_000_000
#: Calls of a HoVer-like workflow, and references to pages of 16 of one of its calls, about.
CALLS, REFS_OF_CALL = 15.6, 620

WAYS: dict[str, Callable[[Recording], object]] = {
    "lru by blocks, all sizes": lambda made: lru_hits(call_blocks(in_order(made, order_of(made)))),
    "lru alone": lambda made: replay_cache(made, Setting(policy="lru")),
    "he alone": lambda made: replay_cache(made, Setting(policy="he")),
    "he in time": lambda made: replay(made, Setting(policy="he", prefetch="off")),
}


def recording(calls: int, page_size: int) -> Recording:
    """About so many calls."""
    settings = EngineSettings(page_size=page_size, device_tokens=850_000)
    return recording_of(HoverLike(layout="shared"), settings, workflows=max(2, round(calls / CALLS)), concurrency=96)


def growth(quick: bool) -> dict[int, dict[str, float]]:
    """{calls: {way: seconds}}."""
    return {calls: {way: child(way, calls, 64)["seconds"] for way in WAYS} for calls in (QUICK_GROWTH if quick else GROWTH)}


def memory(quick: bool) -> dict[str, int]:
    """{way: bytes at the peak}; "recording": the references alone."""
    calls = (QUICK_REFS if quick else REFS) // REFS_OF_CALL
    return {way: child(way, calls, 16)["bytes"] for way in ("recording", *WAYS)}


def child(way: str, calls: int, page_size: int) -> dict[str, Any]:
    """One way in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.replay_scale", way, str(calls), str(page_size)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """WAY CALLS PAGE_SIZE -> {"seconds", "bytes", "refs"} on stdout."""
    way, calls, page_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    made = recording(calls, page_size)
    start = time.process_time()
    if way != "recording":
        WAYS[way](made)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    json.dump({"seconds": seconds, "bytes": peak, "refs": made.page_refs, "calls": made.calls}, sys.stdout)


if __name__ == "__main__":
    main()
