"""Choosing one victim among N leaves: the plugin's persistent queue, SGLang's Python core and its Rust core, in one run.

    python -m tests.benchmarks.bench_evict [--quick] [--json]
    -> {"choose_us": {leaves: {core: us}}, "first_us": {..}, "evict_us": {..}, "rescore_us": {..}, "ratio_to_plugin": {..}}

`choose` is SGLang's own sequence start, next victim, end; `first` the same right after every leaf changed its place, when the plugin's
queue has all of that to catch up with at once; `evict` is a whole eviction of one leaf with its allocator work; `rescore` is one call of
a workflow that owns a thousandth of the leaves: prediction, and every score it changes (0 for SGLang's cores, which have none). CPU time of
the scheduler's thread, median. SGLang's cores look at all leaves anew at each eviction.
"""

import argparse
import json
import random
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import InsertParams
from sglang.srt.mem_cache.radix_cache import RadixKey

from pbkv.identity import CallIdentity
from tests.sglang_cache.harness import FULL, Bench

PAGE = 16
WORKFLOWS = 1000
AGENTS = 8
CORES: dict[str, dict[str, Any]] = {
    "pbkv he": {"plugin": {"policy": "he"}},
    "pbkv first_use": {"plugin": {"policy": "first_use"}},
    "pbkv lru": {"plugin": {"policy": "lru"}},
    "sglang python": {"core": "python"},
    "sglang rust": {"core": "rust"},
}


def median_us(work: Callable[[], None], rounds: int) -> float:
    """Median CPU time of this thread for one `work`, microseconds."""
    times = []
    for _ in range(rounds):
        start = time.thread_time_ns()
        work()
        times.append(time.thread_time_ns() - start)
    return statistics.median(times) / 1e3


def build(leaves: int, options: dict[str, Any]) -> Bench:
    """A cache with `leaves` leaves of one page below 64 shared prefixes of one page."""
    bench = Bench(page=PAGE, size=(leaves + 128) * PAGE, host=None, **options)
    rng = random.Random(0)
    prefixes = [[rng.randrange(1 << 30) for _ in range(PAGE)] for _ in range(64)]
    order = list(range(leaves))
    rng.shuffle(order)  # the order of recency is not the order of creation, prefix by prefix
    for n in order:
        key = RadixKey(array("q", [*prefixes[n % 64], *((n << 8) + i for i in range(PAGE))]))
        found = bench.match(key.raw_token_ids().tolist())
        fresh = bench.allocator.alloc(2 * PAGE - found.device_prefix_len)
        value = torch.cat([bench.cache.path_device_indices(found.last_device_node), fresh])
        bench.cache.insert(InsertParams(key=key, value=value, prev_prefix_len=found.device_prefix_len))
    return bench


def give_scores(bench: Bench) -> None:
    """Each leaf belongs to one of WORKFLOWS live workflows and one of AGENTS agents, which call each other in a fixed mix."""
    rng, state = random.Random(1), bench.runtime.state
    for _ in range(5_000):
        bench.runtime.predictor.observe([rng.randrange(AGENTS)], min(rng.randrange(AGENTS), rng.randrange(AGENTS)))
    calls = []
    for n in range(WORKFLOWS):
        workflow, agent = state.begin_call(CallIdentity(f"w{n}", f"agent {rng.randrange(AGENTS)}"))
        state.end_call(workflow)
        calls.append((workflow, agent))
    for node in list(bench.core.evictable_device_leaves):
        workflow, agent = rng.choice(calls)
        state.touch(workflow, agent, [node.parent.pbkv, node.pbkv] if "pbkv" in node.parent.__dict__ else [node.pbkv])


def measure(leaves: int, options: dict[str, Any], rounds: int) -> dict[str, float]:
    """Microseconds of choosing, evicting and (plugin) rescoring."""
    bench = build(leaves, options)
    found: dict[str, float] = {"rescore": 0.0}
    if bench.runtime is not None:
        give_scores(bench)
        rng, state = random.Random(2), bench.runtime.state

        def call() -> None:
            workflow, agent = state.begin_call(CallIdentity(f"w{rng.randrange(WORKFLOWS)}", f"agent {rng.randrange(AGENTS)}"))
            state.touch(workflow, agent, [])
            state.end_call(workflow)

        found["rescore"] = median_us(call, rounds)
    core = bench.core

    def choose() -> None:
        core.evict_device_start(FULL, PAGE)
        core.evict_device_next_node(FULL, {FULL: 0})
        core.evict_device_end(FULL)

    found["first"] = median_us(choose, 1)
    found["choose"] = median_us(choose, rounds)
    found["evict"] = median_us(lambda: bench.evict(PAGE) and None, rounds)
    return found


def run(sizes: list[int], rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """All cores at all sizes, as in the module's docstring."""
    result: dict[str, dict[str, Any]] = {"choose_us": {}, "first_us": {}, "evict_us": {}, "rescore_us": {}, "ratio_to_plugin": {}}
    for leaves in sizes:
        found = {name: measure(leaves, options, rounds) for name, options in CORES.items()}
        size = str(leaves)
        for what in ("choose", "first", "evict", "rescore"):
            result[f"{what}_us"][size] = {name: round(f[what], 2) for name, f in found.items()}
        result["ratio_to_plugin"][size] = {name: round(f["choose"] / found["pbkv he"]["choose"], 2) for name, f in found.items()}
    return result


def table(result: dict[str, dict[str, Any]]) -> str:
    """The same for people."""
    head = ("choose us", "first us", "evict us", "rescore us", "x of pbkv he")
    lines = [f"{'leaves':>8}  {'core':<16}" + "".join(f"{h:>14}" for h in head)]
    for size, cores in result["choose_us"].items():
        for name, us in cores.items():
            row = (us, *(result[what][size][name] for what in ("first_us", "evict_us", "rescore_us", "ratio_to_plugin")))
            lines.append(f"{size:>8}  {name:<16}" + "".join(f"{v:>14.1f}" for v in row))
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2,000 and 10,000 leaves, fewer rounds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    result = run([2_000, 10_000] if options.quick else [2_000, 10_000, 100_000], 60 if options.quick else 200)
    print(json.dumps(result, indent=2) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
