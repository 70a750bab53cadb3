"""Against stock SGLang: what of the same recorded calls is cached, on the cache alone and on servers, and what the plugin costs.

    python -m tests.benchmarks.bench_stock [--quick] [--json] [--part cache|server]
    -> {"cache": {workload: {"source", "live_tokens", "calls", "hit": {share: {configuration: %}}, "refused": {share: {..}}}},
        "cost": {"prompt_tokens", "calls", "us_per_call": {configuration: us}},
        "server": {workload: {configuration: {"hit", "calls", "calls_per_s", "ttft_ms_mean", "ttft_ms_p95",
                                              "plugin_us_per_step", "plugin_us_per_call"}}}}

Workflows are interleaved, so many at a time, and the order of calls is one for all (tests/support/recorded.py). `share`: device tokens as
a share of what the live workflows would keep in an unlimited cache. Hit: percent of prompt tokens found on device or host; segments are a
DIVISOR-th as long as recorded. `us_per_call`, with prompts as long as recorded: CPU time of a call's work in the cache, which is matching,
evicting, inserting twice, and with the plugin its work, events included. A generator stands in for a recording that is not at hand, and
`source` says so. Servers run on the CPU with a tiny model.
"""

import argparse
import itertools
import json
import sys
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pbkv_sglang_cpu.model import make_model

from pbkv.workloads.layouts import LayoutName
from tests.benchmarks import stock_server
from tests.benchmarks.stock_cache import CONFIGURATIONS, play
from tests.support.recorded import Step, live_tokens, order, recorded
from tests.support.server import Server, running_server


@dataclass(frozen=True)
class Panel:
    """A workload on the cache alone. `calls` are played, the first tenth of them unmeasured; `host`: size of the host tier, in devices."""

    recording: str
    layout: LayoutName
    shares: tuple[float, ...] = (0.2, 0.3, 0.5, 0.75, 1.0)
    host: float | None = None
    calls: int = 1000
    max_calls: int = 40
    concurrency: int = 32
    running: int = 8

    @property
    def name(self) -> str:
        """As in the tables."""
        return f"{self.recording}, {self.layout}" + ("" if self.host is None else f", host tier {self.host:g}x")


PANELS = (
    Panel("hyperagent", "private"), Panel("who_and_when", "group"), Panel("hyperagent", "shared"),
    Panel("hyperagent", "private", (0.15, 0.3), host=1.5),
)
#: Recording, layout, calls of a workflow, and device tokens as a share of what the live workflows would keep.
SERVED: tuple[tuple[str, LayoutName, int, float], ...] = (("hyperagent", "private", 24, 0.5), ("who_and_when", "group", 16, 0.5))
DIVISOR = 4
CONCURRENCY, SCALE, SERVER_PAGE = 10, stock_server.Scale(), 16


def steps_of(panel: Panel, calls: int) -> tuple[str, list[Step], float]:
    """(source, the steps of the first `calls` calls, tokens the live workflows would keep)."""
    source, workflows = recorded(panel.recording, panel.layout, max_calls=panel.max_calls)
    made = order(workflows, panel.concurrency, panel.running)
    return source, list(itertools.takewhile(lambda step: step.number <= calls, made)), panel.concurrency * live_tokens(workflows)


def on_the_cache(panel: Panel, calls: int, shares: tuple[float, ...]) -> dict[str, Any]:
    """All configurations along the curve."""
    source, steps, live = steps_of(panel, calls)
    shape: dict[str, Any] = {"warm": calls // 10, "host": panel.host, "divisor": DIVISOR}
    found = {
        str(share): {name: play(options, steps, int(live * share) // DIVISOR, **shape) for name, options in CONFIGURATIONS.items()}
        for share in shares
    }
    return {
        "source": source, "live_tokens": round(live), "calls": calls,
        "hit": {share: {name: round(f.hit, 2) for name, f in by.items()} for share, by in found.items()},
        "refused": {share: {name: f.refused for name, f in by.items()} for share, by in found.items()},
    }


def cost(panel: Panel, calls: int) -> dict[str, Any]:
    """CPU time per call of each configuration at full length, where half of the live tokens fit."""
    _, steps, live = steps_of(panel, calls)
    found = {name: play(options, steps, int(live * 0.5), warm=calls // 4) for name, options in CONFIGURATIONS.items()}
    prompts = [f.prompt / f.calls for f in found.values()]
    return {"prompt_tokens": round(prompts[0]), "calls": calls, "us_per_call": {name: round(f.us_per_call) for name, f in found.items()}}


def on_servers(calls: int, count: int) -> dict[str, Any]:
    """All configurations on the first `count` of SERVED, on this machine's CPU with a tiny model."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "tiny")

        def start(size: int, **options: Any) -> AbstractContextManager[Server]:
            shape: dict[str, Any] = {"max_total_tokens": size // SERVER_PAGE * SERVER_PAGE, "max_running_requests": SCALE.running}
            return running_server(model, hicache_ratio=None, page_size=SERVER_PAGE, context_length=16_384, **shape, **options)

        for recording, layout, max_calls, share in SERVED[:count]:
            _, workflows = recorded(recording, layout, max_calls=max_calls)
            steps = list(itertools.takewhile(lambda step: step.number <= calls, order(workflows, CONCURRENCY, SCALE.running)))
            size = int(CONCURRENCY * live_tokens(workflows) * share) // SCALE.divisor
            served = stock_server.compare(start, steps, size, SCALE)
            found[f"{recording}, {layout}"] = {name: f.as_json() for name, f in served.items()}
    return found


def show(result: dict[str, Any]) -> str:
    """Tables for people."""
    lines: list[str] = []
    for name, panel in result.get("cache", {}).items():
        lines += ["", f"cache alone: {name} ({panel['source']}), {panel['live_tokens']:,} tokens live, {panel['calls']} calls"]
        lines.append(f"{'':28}" + "".join(f"{f'hit % at {share}':>14}" for share in panel["hit"]))
        lines += [f"{c:28}" + "".join(f"{by[c]:>14.1f}" for by in panel["hit"].values()) for c in CONFIGURATIONS]
    if "cost" in result:
        lines += ["", f"CPU time per call in the cache, prompts of {result['cost']['prompt_tokens']:,} tokens"]
        lines += [f"{c:28}{us:>10} us" for c, us in result["cost"]["us_per_call"].items()]
    for name, by in result.get("server", {}).items():
        lines += ["", f"server: {name}", f"{'':28}{'calls':>8}{'hit %':>8}{'calls/s':>9}{'TTFT ms':>9}{'plugin us/step':>16}{'us/call':>9}"]
        for c, f in by.items():
            spent = f"{f['plugin_us_per_step']:>16.0f}{f['plugin_us_per_call']:>9.0f}" if "plugin_us_per_step" in f else ""
            lines.append(f"{c:28}{f['calls']:>8}{f['hit']:>8.1f}{f['calls_per_s']:>9.2f}{f['ttft_ms_mean']:>9.0f}{spent}")
    return "\n".join(lines[1:])


def main(argv: list[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one workload, two sizes, fewer calls")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--part", choices=("cache", "server"), help="this part alone")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    if options.part != "server":
        panels = PANELS[:1] if options.quick else PANELS
        result["cost"] = cost(PANELS[0], 120 if options.quick else 480)
        result["cache"] = {
            p.name: on_the_cache(p, 400 if options.quick else p.calls, p.shares[:2] if options.quick else p.shares) for p in panels
        }
    if options.part != "cache":
        result["server"] = on_servers(40 if options.quick else 200, 1 if options.quick else len(SERVED))
    print(json.dumps(result, indent=2) if options.json else show(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
