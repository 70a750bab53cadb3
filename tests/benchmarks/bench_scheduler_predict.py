"""What a trained predictor costs the scheduler's thread: the predictions of a step, the text signals of its calls, and telling other ranks.

    python -m tests.benchmarks.bench_scheduler_predict [--quick] [--json]
    -> {"step_us": {workflows: {..}}, "signal_us": {..}, "share_us": {..}}

`step`: workflows that became due in one step of SGLang's real cache with the plugin, two leaves each: encoding, the network (8 agents, 128
numbers of text), the mixture with the online chain, plans and scores. `chain`: the same without a trained predictor, where each is
predicted at once. `signal`: the product with the projection (CPU; on a GPU it is queued), taking in a batch of decode rows of which none
ends, and a call's reply; the ids of a prompt. `share`: the answers of a step packed, sent from one process to another (gloo), unpacked.
CPU time of the scheduler's thread on one core, `share` wall time; median and fastest of the rounds.
"""

import argparse
import functools
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from pbkv.predictor.base import Moment
from pbkv.predictor.budget import Answer, Budgeted
from pbkv.predictor.mixed import Mixed
from pbkv.predictor.names import Roster
from pbkv.predictor.signal import of_ids
from tests.benchmarks.bench_predict import network, times_us

AGENTS, TEXT = 8, 128
WORKFLOWS = (1, 8, 64)


def cpu_us(work: Callable[[], object], rounds: int) -> dict[str, float]:
    """Median and fastest time of one `work` on this thread's processor, microseconds."""
    taken = []
    for n in range(rounds + 5):
        start = time.thread_time_ns()
        work()
        if n >= 5:
            taken.append((time.thread_time_ns() - start) / 1e3)
    return {"median": round(statistics.median(taken), 1), "fastest": round(min(taken), 1)}


# ---- predictions -------------------------------------------------------------------------------------------------------------


def step_us(workflows: int, rounds: int, *, trained: bool) -> dict[str, float]:
    """One step in which so many workflows fall due."""
    from pbkv.identity import CallIdentity
    from pbkv.sglang.forecasts import Forecasts
    from tests.sglang_cache.harness import Bench

    bench = Bench(plugin={"policy": "he", "prefetch": "off"}, page=1, size=64 * WORKFLOWS[-1], host=None)
    runtime, state = bench.runtime, bench.runtime.state
    if trained:
        predictor, _ = network(AGENTS, TEXT)
        predictor.roster.bind(state.agent_names)
        runtime.predictor = state.predictor = Mixed(predictor)
        runtime.forecasts = Forecasts(state, Budgeted(runtime.predictor, 10**12), None)
    names = [f"agent {n}" for n in range(AGENTS)]
    paths = [[list(range(base, base + 8)), list(range(base + 20, base + 28))] for base in range(0, 40 * workflows, 40)]
    for path in paths:
        for tokens in path:
            bench.put(tokens)
    records = [[record for tokens in path for record in bench.records(tokens)] for path in paths]
    turn = 0

    def step() -> None:
        nonlocal turn
        turn += 1
        for n, path in enumerate(records):
            workflow, agent = state.begin_call(CallIdentity(f"w{n}", names[(turn * 7 + n) % AGENTS], False))
            workflow.text = signal
            state.touch(workflow, agent, path)
            state.end_call(workflow)
        runtime.settle()

    signal = np.arange(TEXT, dtype=np.int8)
    return cpu_us(step, rounds)


# ---- signals -----------------------------------------------------------------------------------------------------------------


def signal_us(rounds: int) -> dict[str, Any]:
    """Times of one batch of 64 requests, and of one call."""
    import torch

    torch.set_num_threads(1)
    from pbkv.sglang.signals import Signals
    from pbkv.sglang.sources import Source

    runner = SimpleNamespace(sample=lambda output, batch: None)
    signals = Signals(SimpleNamespace(recorder=None), Source("hidden", runner), feeds=True)  # pyright: ignore[reportArgumentType]
    requests = [SimpleNamespace() for _ in range(64)]
    committed, batch = [SimpleNamespace(output_index=5)] * 64, SimpleNamespace(reqs=requests)
    found: dict[str, Any] = {}
    for width in (64, 5120):
        output = SimpleNamespace(hidden_states=torch.randn(64, width), auxiliary_device_output=None)
        signals._matrix = None

        def project(output: Any = output) -> None:
            output.auxiliary_device_output = None
            signals._project(output, SimpleNamespace(batch_size=64))

        found[f"project 64 x {width} (CPU)"] = cpu_us(project, rounds)
        rows = output.auxiliary_device_output._rows
    found["take in a decode batch of 64"] = cpu_us(lambda: signals._arrived(batch, committed, rows), rounds)
    first = [SimpleNamespace(output_index=0)] * 64
    prefill = cpu_us(lambda: signals._arrived(batch, first, rows), rounds)
    found["take in a prompt"] = {name: round(us / 64, 1) for name, us in prefill.items()}
    prompt = list(range(10_000))
    found["ids of a prompt of 10,000"] = cpu_us(lambda: of_ids(prompt), rounds)
    return found


# ---- ranks -------------------------------------------------------------------------------------------------------------------


def _rank(rank: int, place: str, rounds: int, results: Any) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch.distributed as distributed

    from pbkv.sglang.ranks import ranks_of

    distributed.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    ranks = ranks_of(distributed.group.WORLD)
    assert ranks is not None
    answers = _answers(64)
    found = {}
    for count in WORKFLOWS:
        chosen = answers[:count] if rank == 0 else []
        found[str(count)] = times_us(functools.partial(ranks.share, chosen, count), rounds)
    if rank == 0:
        results.put(found)
    distributed.barrier()
    distributed.destroy_process_group()


def _answers(count: int) -> list[Answer]:
    predictor, _ = network(AGENTS, TEXT)
    mixed = Mixed(predictor)
    predictor.roster.bind(Roster([f"agent {n}" for n in range(AGENTS)]).names)
    return [Answer(mixed.predict(Moment(f"w{n}", [n % AGENTS], 1)), 8) for n in range(count)]


def share_us(rounds: int) -> dict[str, Any]:
    """From the leader's answers to the same on both, by number of workflows."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=_rank, args=(rank, f"{folder}/meet", rounds, results)) for rank in (0, 1)]
        for process in processes:
            process.start()
        found = results.get(timeout=120)
        for process in processes:
            process.join(30)
    return found


def table(result: dict[str, Any]) -> str:
    """The same for people."""
    lines = []
    for part, rows in result.items():
        for name, times in rows.items():
            cells = times if "median" in times else times.items()
            for what, us in [("", cells)] if "median" in times else cells:
                lines.append(f"{part:<10} {name:<30} {what:<8} {us['median']:>9.1f} us median {us['fastest']:>9.1f} us fastest")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    # More threads than cores wait for each other.
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    rounds = 40 if options.quick else 200
    result = {
        "step_us": {
            str(n): {"trained": step_us(n, rounds, trained=True), "chain": step_us(n, rounds, trained=False)} for n in WORKFLOWS
        },
        "signal_us": signal_us(rounds),
        "share_us": share_us(rounds),
    }
    print(json.dumps(result, indent=2) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
