"""Replaying a trace on one core: blocks per second beside other simulators, by policy; how time grows with calls; memory.

    python -m tests.benchmarks.bench_replay [--quick] [--json] [--peers PYTHON]
    -> {"traces": {name: {"refs", "calls", "distinct", "sizes", "rates", "hits", "account", ..}}, "growth": {calls: {what: s}},
        "memory": {what: bytes}, "targets"}

PYTHON (or $PBKV_PEERS) is an interpreter with `pip install kvcache-simulator libcachesim`, by default this one; without them only our own
figures are there. A rate is references to blocks of prompts per second, times pool sizes. Blocks: both sides begin with numbered ids in a
file and end with hits; reading, their trie and our numbering are in the time, which "10 sizes" share. The tree is given a recording in
memory and one size. Outputs are left out everywhere, since simulators of blocks know none. CPU time, best of the rounds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pbkv.engine.settings import EngineSettings
from pbkv.errors import UsageError
from pbkv.whatif.account import account, prompt_blocks
from pbkv.whatif.blocks import BlockTrace, numbered
from pbkv.whatif.from_workload import recording_of
from pbkv.whatif.hitrates import replay_cache
from pbkv.whatif.order import Turn, in_order, order_of
from pbkv.whatif.recording import Recording
from pbkv.whatif.setting import Setting
from pbkv.whatif.sources import check_policy, open_trace
from pbkv.whatif.stack import lru_hits
from pbkv.workloads.hover_like import HoverLike
from pbkv.workloads.swe_like import SweLike
from tests.benchmarks import replay_scale
from tests.support.recorded import DATA

POLICIES = ("lru", "lae", "he", "first_use")
#: Pool sizes as shares of the distinct blocks of a trace; the tree gets the first one.
SHARES = (0.1, 0.02, 0.05, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)
TARGETS = {"lru / kvcache-simulator": 3.0, "scored policies / kvcache-simulator": 1.0, "memory_bytes": 2 << 30}
POOL = 1 << 40


def mooncake() -> Recording:
    """Requests of a chat service in blocks of 512 tokens; generated ones without the recording."""
    path = DATA / "mooncake_conversation_trace.jsonl"
    if path.exists():
        return open_trace(path, device_tokens=POOL, page_size=512)
    return recording_of(HoverLike(), EngineSettings(page_size=512, device_tokens=POOL), workflows=800)


def agents(workflows: int) -> Recording:
    """Runs of a SWE-bench system, cut after 30 calls, in pages of 16 tokens; generated ones without the recording."""
    path = DATA / "agent_calls_hyperagent.parquet"
    if path.exists():
        return open_trace(path, device_tokens=POOL, page_size=16, layout="private", max_calls=30, workflows=workflows)
    return recording_of(SweLike(max_calls=30), EngineSettings(page_size=16, device_tokens=POOL), workflows=workflows)


def prompts_alone(recording: Recording) -> Recording:
    """Without outputs."""
    return replace(recording, workflows=tuple(
        w._replace(calls=tuple(call._replace(output_pages=(), output_tokens=1) for call in w.calls)) for w in recording.workflows
    ))


# ---- blocks ------------------------------------------------------------------------------------------------------------------


def write(trace: BlockTrace, folder: Path) -> None:
    """The files that peers_replay reads."""
    trace.blocks.astype("<u4").tofile(folder / "ids.u32")
    np.ones(len(trace.blocks), "<u2").tofile(folder / "tokens.u16")
    trace.starts[1:].astype("<u4").tofile(folder / "ends.u32")


def ours(folder: Path, sizes: Sequence[int], measured_from: int) -> tuple[float, list[int]]:
    """(seconds, hits by size) from the same files."""
    start = time.process_time()
    ids = np.fromfile(folder / "ids.u32", "<i4")
    starts = np.concatenate([np.zeros(1, np.int64), np.fromfile(folder / "ends.u32", "<u4").astype(np.int64)])
    hits = lru_hits(BlockTrace(numbered(ids, starts), starts, np.diff(starts)), measured_from)
    found = [int(hits[min(size, len(hits) - 1)]) for size in sizes]
    return time.process_time() - start, found


def peers(folder: Path, sizes: Sequence[int], python: str) -> dict[str, Any]:
    """What peers_replay found, empty without any."""
    script = Path(__file__).with_name("peers_replay.py")
    done = subprocess.run([python, str(script), str(folder), ",".join(map(str, sizes))], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def block_rates(trace: BlockTrace, sizes: Sequence[int], python: str, rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """(references per second by program, hits by program), in turn, the best of the rounds."""
    rates, hits, refs = dict[str, float](), dict[str, Any](), len(trace.blocks)

    def note(name: str, sizes_: int, seconds: float) -> None:
        rates[name] = max(rates.get(name, 0.0), refs * sizes_ / seconds)

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(trace, folder)
        for _ in range(rounds):
            for count in (1, len(sizes)):
                seconds, hits["lru by blocks"] = ours(folder, sizes[:count], trace.calls // 2)
                note(f"lru by blocks, {_sizes(count)}", count, seconds)
            for name, found in peers(folder, sizes, python).items():
                note(f"{name} lru, 1 size", 1, found["one_s"])
                note(f"{name} lru, {_sizes(len(sizes))}", len(sizes), found["all_s"])
                hits[name] = found["hits"]
    return rates, hits


def _sizes(count: int) -> str:
    return "1 size" if count == 1 else f"{count} sizes"


# ---- the tree ----------------------------------------------------------------------------------------------------------------


def tree_rates(recording: Recording, turns: Sequence[Turn], tokens: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """(references per second, hit rate) by policy, with the cache alone; without policies that the recording is not enough for."""
    rates, hit = dict[str, float](), dict[str, float]()
    for _ in range(rounds):
        for policy in POLICIES:
            try:
                check_policy(recording, policy)
            except UsageError:
                continue
            start = time.process_time()
            outcome = replay_cache(recording, Setting(policy=policy, device_tokens=tokens), turns=turns)
            rates[policy] = max(rates.get(policy, 0.0), recording.page_refs / (time.process_time() - start))
            hit[policy] = outcome.figures["hit_device"]
    return rates, hit


def measure_trace(recording: Recording, python: str, rounds: int) -> dict[str, Any]:
    """Everything about one trace."""
    page, turns = recording.engine.page_size, order_of(recording)
    trace = prompt_blocks(in_order(recording, turns))
    sizes = [int(share * trace.distinct) for share in SHARES]
    rates, hits = block_rates(trace, sizes, python, rounds)
    bare = prompts_alone(recording)
    tree, hit = tree_rates(bare, turns, sizes[0] * page, rounds)
    steps = account(recording, sizes[0] * page, turns)
    return {
        "name": recording.name, "refs": len(trace.blocks), "calls": trace.calls, "distinct": trace.distinct, "sizes": sizes,
        "rates": {**rates, **{f"{policy} in the tree": rate for policy, rate in tree.items()}}, "hits": hits, "tree_hit": hit,
        "account": {step.rule: step.hits for step in steps},
    }


# ---- report ------------------------------------------------------------------------------------------------------------------


def show_trace(name: str, found: dict[str, Any]) -> None:
    """One trace for people."""
    print(f"\n{name}: {found['name']}, {found['calls']:,} calls, {found['refs']:,} references to {found['distinct']:,} blocks")
    peer = found["rates"].get("kvcache_simulator lru, 1 size")
    for what, rate in found["rates"].items():
        print(f"  {what:36}{rate / 1e6:9.2f} M/s" + (f"{rate / peer:8.2f} x kvcache-simulator, 1 size" if peer else ""))
    if not peer:
        print("  kvcache-simulator and libcachesim are not installed here; name an interpreter that has them with --peers")
    hits = found["hits"]
    pairs = zip(hits.get("kvcache_simulator", []), hits["lru by blocks"], strict=False)
    same = [theirs == mine for theirs, mine in pairs if theirs is not None]
    print(f"  the hits of kvcache-simulator at {sum(same)} of {len(same)} sizes; with a pool of {found['sizes'][0]:,} blocks,")
    for rule, count in {"libcachesim": hits.get("libcachesim", [0])[0], **found["account"]}.items():
        print(f"    {rule:48}{count:>12,}")


def show(result: dict[str, Any]) -> None:
    """Tables for people."""
    for name, found in result["traces"].items():
        show_trace(name, found)
    print("\nseconds by calls (pages of 64)")
    for calls, row in result["growth"].items():
        print(f"  {calls:>8,}  " + "  ".join(f"{what} {seconds:.2f}" for what, seconds in row.items()))
    print("\npeak memory: " + ", ".join(f"{what} {size / (1 << 20):,.0f} MiB" for what, size in result["memory"].items()))


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, fewer calls")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peers", default=os.environ.get("PBKV_PEERS", sys.executable), metavar="PYTHON")
    options = parser.parse_args()
    rounds = 1 if options.quick else 5
    traces = {"512-token blocks": mooncake(), "16-token pages": agents(60 if options.quick else 220)}
    result: dict[str, Any] = {"targets": TARGETS, "traces": {
        name: measure_trace(recording, options.peers, rounds) for name, recording in traces.items()
    }}
    traces.clear()
    result |= {"growth": replay_scale.growth(options.quick), "memory": replay_scale.memory(options.quick)}
    if options.json:
        json.dump(result, sys.stdout)
    else:
        show(result)


if __name__ == "__main__":
    main()
