"""Calls per second of the embedded engine in virtual time, on one core, without telemetry.

    python -m tests.benchmarks.bench_engine [--quick] [--json]
    -> {"calls_per_s": {setting: {policy: calls/s}}, "prompt_tokens": {setting: mean}, "calls_per_workflow": x, "yardstick_ms": y, ...}

Workflows are made beforehand; everything else of a play counts: naming pages, tree, policy, scheduling, statistics. `generate_us` is what
making a call costs on top. CPU time of the process, best of the rounds, policies in turn. The yardstick is a fixed piece of Python in the
same run (a million dictionary look-ups): figures of two runs compare by their ratio to it.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pbkv.engine.engine import Engine
from pbkv.engine.play import PlaySettings, play
from pbkv.engine.settings import EngineSettings
from pbkv.knobs import KnobSet
from pbkv.workloads.hover_like import HoverLike
from pbkv.workloads.tokens import TokenWorkflow

POLICIES = ("lru", "lae", "he", "first_use")
#: Name -> layout of the prompts, scale of outputs, device and host tokens. Pools are too small for 96 workflows at a time. The first one
#: has the prompts of about 10,000 tokens that the targets are for.
SETTINGS: dict[str, tuple[Any, float, int, int]] = {
    "private history": ("private", 1.6, 900_000, 0),
    "shared context": ("shared", 1.0, 850_000, 0),
    "group chat": ("group", 1.0, 1_000_000, 0),
    "shared context, host tier": ("shared", 1.0, 600_000, 1_200_000),
}
TARGETS = {"lru": 20_000, "he": 8_000}


@dataclass
class Made:
    """Workflows made beforehand."""

    name: str
    made: list[TokenWorkflow]

    def workflows(self, seed: int) -> Iterator[TokenWorkflow]:
        return iter(self.made)


def calls_per_s(workload: Made, policy: str, device: int, host: int, workflows: int) -> float:
    """One play."""
    knobs = KnobSet()
    knobs.values.update(policy=policy, prefetch="off")
    engine = Engine(EngineSettings(device_tokens=device, host_tokens=host), knobs)
    start = time.process_time()
    played = play(engine, workload, PlaySettings(concurrency=96, workflows=workflows, stagger_s=60.0))
    return played.calls_played / (time.process_time() - start)


def yardstick_ms() -> float:
    """CPU time of a fixed piece of Python."""
    table = {n: n for n in range(100_000)}
    start = time.process_time()
    total = 0
    for n in range(1_000_000):
        total += table[n * 7919 % 100_000]
    return (time.process_time() - start) * 1e3


def measure(rounds: int, workflows: int) -> dict[str, Any]:
    """All settings and policies, in turn, `rounds` times."""
    result: dict[str, Any] = {"calls_per_s": {}, "prompt_tokens": {}, "targets": TARGETS}
    marks = [yardstick_ms()]
    for name, (layout, scale, device, host) in SETTINGS.items():
        start = time.process_time()
        made = Made("hover", list(itertools.islice(HoverLike(layout=layout, output_scale=scale).workflows(0), workflows + 130)))
        calls = [call for workflow in made.made for call in workflow.calls]
        result["generate_us"] = round((time.process_time() - start) / len(calls) * 1e6, 1)
        result["calls_per_workflow"] = round(len(calls) / len(made.made), 1)
        result["prompt_tokens"][name] = round(sum(call.prompt_tokens for call in calls) / len(calls))
        best = dict.fromkeys(POLICIES, 0.0)
        for _ in range(rounds):
            for policy in POLICIES:
                best[policy] = max(best[policy], calls_per_s(made, policy, device, host, workflows))
        marks.append(yardstick_ms())
        result["calls_per_s"][name] = {policy: round(rate) for policy, rate in best.items()}
    result["yardstick_ms"] = round(min(marks), 1)
    return result


def show(result: dict[str, Any]) -> None:
    """A table for people."""
    print(f"{'':28}{'prompt':>8}" + "".join(f"{policy:>11}" for policy in POLICIES))
    for name, rates in result["calls_per_s"].items():
        print(f"{name:28}{result['prompt_tokens'][name]:>8}" + "".join(f"{rates[policy]:>11,}" for policy in POLICIES))
    print(f"calls/s; {result['calls_per_workflow']} calls per workflow; yardstick {result['yardstick_ms']} ms; "
          f"making a call beforehand {result['generate_us']} us")


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round instead of six")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(1 if options.quick else 6, 100)
    if options.json:
        json.dump(result, sys.stdout)
    else:
        show(result)


if __name__ == "__main__":
    main()
