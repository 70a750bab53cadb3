"""Grids over an event log: reading it, and 100 settings on two processes, from 5,000 to 50,000 calls; 500,000 from one setting.

    python -m tests.benchmarks.bench_grid [--quick] [--json]
    -> {"logs": {calls: {"log_s", "read_s", "grids": {name: {"asked", "replayed", "grid_s", "calls_per_s"}}}}, "large": {...}, ...}

The log is one of the embedded engine serving HoVer-like workflows (6,400 prompt tokens in the mean, pages of 64), 14 to 17 calls a
second, so that 50,000 are about an hour. It is written through the real event stream into a real store, and read back. `knobs` is 4
policies x 5 gammas x 5 horizons, of which some come to the same; `pools` is 4 policies x 25 sizes of the device tier, all different.
Nothing is cached. `grid_s` is wall-clock time, of a machine that others may use too, `cpu_s` the processor time of all processes,
`calls_per_s` per second of it. The yardstick is that of bench_engine. `large`: a recording made without a log, of which one setting is
replayed.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from collector.client import open as open_source
from pbkv.engine.settings import EngineSettings
from pbkv.engine.timing import preset
from pbkv.whatif.axes import AXES
from pbkv.whatif.digest import digest
from pbkv.whatif.from_workload import recording_of
from pbkv.whatif.grid import parse_axes
from pbkv.whatif.log import read_log
from pbkv.whatif.recording import Recording
from pbkv.whatif.replay import replay
from pbkv.whatif.run import run_grid
from pbkv.whatif.setting import Setting
from pbkv.workloads.hover_like import HoverLike
from tests.benchmarks.bench_engine import yardstick_ms
from tests.whatif.runs import make_engine, run_play

CALLS_PER_WORKFLOW = 15.6
WORKERS = 2
SERVER: dict[str, Any] = {
    "page_size": 64, "device_tokens": 1_200_000, "max_running": 128, "chunk_tokens": 16_384, "timing": preset("qwen3-14b@h200", 6),
}
LIVE = 144
GRIDS: dict[str, Mapping[str, str]] = {
    "knobs": {"policy": "lru,lae,he,first_use", "gamma": "0.2:1:0.2", "k": "1:5:1"},
    "pools": {"policy": "lru,lae,he,first_use", "device_tokens": "x0.4:x1.6:x0.05"},
}
QUICK_GRIDS: dict[str, Mapping[str, str]] = {
    "knobs": {"policy": "lru,he", "gamma": "0.2,0.8", "k": "1,3"}, "pools": {"policy": "lru,he", "device_tokens": "x0.5,x1"},
}


def log_of(calls: int, folder: Path) -> Path:
    """A log of about so many calls."""
    engine = make_engine(SERVER, {"prefetch": "off", "score_snapshot_s": 60.0})
    run = run_play(engine, HoverLike(delay_scale=0.6), concurrency=LIVE, workflows=round(calls / CALLS_PER_WORKFLOW), stagger_s=30.0)
    return run.store(folder / f"{calls}.duckdb")


def measure_log(calls: int, grids: Mapping[str, Mapping[str, str]], folder: Path) -> dict[str, Any]:
    """One log: made, read, and each grid run over it."""
    started = time.perf_counter()
    path = log_of(calls, folder)
    made = time.perf_counter()
    with open_source(str(path)) as reader:
        recording = read_log(lambda sql, params: reader.sql(sql, params or None, deadline_s=600.0))
    read = time.perf_counter()
    digest(recording)
    return {
        "calls": recording.calls, "page_refs": recording.page_refs, "log_s": round(made - started, 2), "read_s": round(read - made, 2),
        "digest_s": round(time.perf_counter() - read, 2), "grids": {name: grid(recording, axes) for name, axes in grids.items()},
    }


def grid(recording: Recording, axes: Mapping[str, str]) -> dict[str, Any]:
    """One grid, nothing of it known."""
    settings = parse_axes(axes, recording)
    asked = prod(len(AXES[name].values(text, recording)) for name, text in axes.items())
    started, worked = time.perf_counter(), cpu_s()
    found = run_grid(recording, settings, workers=WORKERS)
    took, worked = time.perf_counter() - started, cpu_s() - worked
    assert not found.stopped and not [cell for cell in found.cells if cell.error]
    return {
        "asked": asked, "different": len(settings), "replayed": found.replayed, "grid_s": round(took, 1),
        "cpu_s": round(worked, 1), "calls_per_s": round(found.replayed * recording.calls / worked),
    }


def cpu_s() -> float:
    """Processor time of this process and its workers that have ended, s."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def large(calls: int) -> dict[str, Any]:
    """Time of one setting at so many calls."""
    workload, settings = HoverLike(delay_scale=0.6), EngineSettings(**SERVER)
    recording = recording_of(workload, settings, workflows=round(calls / CALLS_PER_WORKFLOW), concurrency=LIVE)
    found: dict[str, Any] = {"calls": recording.calls, "page_refs": recording.page_refs}
    for policy in ("lru", "he"):
        started = time.perf_counter()
        outcome = replay(recording, Setting(policy=policy, prefetch="off"))
        found[policy] = {"s": round(time.perf_counter() - started, 1), "hours": round(outcome.engine_s / 3600, 2)}
    return found


def measure(*, quick: bool) -> dict[str, Any]:
    """All of it."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = (1_500,) if quick else (5_000, 50_000)
        logs = {str(n): measure_log(n, QUICK_GRIDS if quick else GRIDS, Path(folder)) for n in sizes}
    result = {"logs": logs, "target_s": 60, "workers": WORKERS, "yardstick_ms": round(yardstick_ms(), 1)}
    if not quick:
        result["large"] = large(500_000)
    result["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    result["peak_worker_rss_mib"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    return result


def show(result: dict[str, Any]) -> None:
    """Tables for people."""
    for log in result["logs"].values():
        print(f"{log['calls']:,} calls, {log['page_refs']:,} page references: log made in {log['log_s']} s, read in {log['read_s']} s")
        for name, found in log["grids"].items():
            print(
                f"  {name:6} {found['asked']:>4} settings, {found['different']:>4} different, {found['replayed']:>4} replays: "
                f"{found['grid_s']:>7} s, processor time {found['cpu_s']} s, {found['calls_per_s']:,} calls/s of it",
            )
    if "large" in result:
        at = result["large"]
        print(f"{at['calls']:,} calls, {at['page_refs']:,} page references: " + ", ".join(f"{p} {at[p]['s']} s" for p in ("lru", "he")))
    print(
        f"{result['workers']} processes; target for 100 settings of 50,000 calls {result['target_s']} s; "
        f"yardstick {result['yardstick_ms']} ms; largest process {result['peak_rss_mib']} MiB, worker {result['peak_worker_rss_mib']} MiB",
    )


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short log and small grids")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(quick=options.quick)
    if options.json:
        json.dump(result, sys.stdout)
    else:
        show(result)


if __name__ == "__main__":
    main()
