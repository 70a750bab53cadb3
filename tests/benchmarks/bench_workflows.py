"""A million workflows through the plugin on SGLang's own cache: memory and time a call, as the tables fill and after they are full.

    python -m tests.benchmarks.bench_workflows [--quick] [--workflows N] [--json]
    -> {"rss_mb": {workflows: MB}, "us_per_call": {workflows: us}, "live": N}

Each workflow makes one call and is never closed, so that 100,000 of them are live (`pbkv.state.MAX_WORKFLOWS`) and the longest idle one
retires for each new one; names of workflows and agents are all different as far as the tables go. All read one of 200 shared prompts of 32
tokens, every fourth adds as many of its own. With telemetry, whose messages are thrown away. RSS of the process; CPU time of the thread in
the calls since the last reading.
"""

import argparse
import gc
import json
import random
import sys
import time
from typing import Any

import psutil

from tests.sglang_cache.harness import Bench

PAGE, SIZE = 16, 65_536
READINGS = 10


class Nowhere:
    """Takes messages and keeps none."""

    def offer(self, seq: int, payload: bytes) -> bool:
        return True


def run(workflows: int) -> dict[str, Any]:
    """Readings at ten places."""
    bench = Bench(plugin={"policy": "he"}, page=PAGE, size=SIZE, host=2.0, observe=True)
    runtime, rng = bench.runtime, random.Random(0)
    runtime.telemetry.writer._sink = Nowhere()
    rss, us, process = dict[int, int](), dict[int, float](), psutil.Process()
    started, since = time.thread_time_ns(), 0
    for n in range(1, workflows + 1):
        start = rng.randrange(200) * 1000
        own = range(n << 8, (n << 8) + 32) if n % 4 == 0 else ()
        bench.call(f"workflow-{n}", f"agent-{n % 5000}", [*range(start, start + 32), *own])
        if n % 16 == 0:
            bench.settle()
            runtime.step += 1
            runtime.telemetry.end_step(runtime.step)
        if n % (workflows // READINGS) == 0:
            us[n] = round((time.thread_time_ns() - started) / (n - since) / 1e3, 1)
            gc.collect()
            rss[n] = process.memory_info().rss // 10**6
            print(f"{n:,} workflows: {rss[n]} MB, {us[n]} us a call", file=sys.stderr, flush=True)
            started, since = time.thread_time_ns(), n
    live = len(runtime.state.live)
    bench.close()
    return {"rss_mb": rss, "us_per_call": us, "live": live}


def main(argv: list[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20,000 workflows")
    parser.add_argument("--workflows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    result = run(20_000 if options.quick else options.workflows)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{'workflows':>12}{'RSS, MB':>10}{'us a call':>12}")
        print("\n".join(f"{n:>12,}{mb:>10}{result['us_per_call'][n]:>12}" for n, mb in result["rss_mb"].items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
