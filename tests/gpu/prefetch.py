"""Prefetch with real streams and delayed loads: the answers are the stock server's, and without the plugin's wait they are not.

SGLang's SGLANG_TEST_HICACHE_H2D_DELAY_CYCLES makes each layer of a load take that much longer. Calls are made one at a time, so that
batches are the same in every run; while one decodes, prefetch brings in KV that the next call reads at once.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.stock_server import Scale, request
from tests.gpu.models import VOCABULARY, with_weights
from tests.gpu.servers import Servers
from tests.support.recorded import Step, Tokens, live_tokens, order, recorded
from tests.support.server import Server

#: Workflows at a time, calls, calls of a workflow. SHARE: of live tokens, on the device.
CONCURRENCY, CALLS, MAX_CALLS, SHARE = 6, 120, 10, 0.5
SCALE = Scale(divisor=8, running=1, vocabulary=VOCABULARY)
#: float32 and one backend that has it: answers must not depend on how a prompt was split between cache and prefill.
FLAGS = ("--dtype", "float32", "--attention-backend", "triton", "--disable-cuda-graph")
CONFIG = {"server": "gpu", "knobs": {"policy": "he", "prefetch": "aggressive"}}
#: Name of a run -> how its server is started; `delayed` ones get the delay.
RUNS: dict[str, dict[str, Any]] = {
    "stock": {},
    "plugin": {"config": CONFIG},
    "plugin, loads delayed": {"config": CONFIG, "delayed": True},
    "plugin without the wait, loads delayed": {"config": CONFIG, "delayed": True, "module": "tests.gpu.unguarded"},
}
STOCK, PLAIN, GUARDED, UNGUARDED = RUNS


def run(folder: Path, delay_cycles: int, flags: Sequence[str] = ()) -> dict[str, Any]:
    """Rows of the runs, and the verdict."""
    servers = Servers(with_weights(folder / "answers"), running=1, page=16, host=4.0, flags=(*FLAGS, *flags))
    _, workflows = recorded("hyperagent", "private", max_calls=MAX_CALLS)
    steps = list(itertools.takewhile(lambda step: step.number <= CALLS, order(workflows, CONCURRENCY, 1)))
    size = int(CONCURRENCY * live_tokens(workflows) * SHARE) // SCALE.divisor
    rows: dict[str, dict[str, Any]] = {}
    truth: list[list[int]] = []
    for name, options in RUNS.items():
        given = {key: value for key, value in options.items() if key != "delayed"}
        env = {"SGLANG_TEST_HICACHE_H2D_DELAY_CYCLES": str(delay_cycles)} if "delayed" in options else {}
        with servers.start(size, env=env, **given) as server:
            answers, hits = ask(server, steps, SCALE)
            counts = server.state()["counts"] if "config" in options else {}
        truth = truth or answers
        rows[name] = row(truth, answers, hits, counts)
    return {"verdict": verdict(rows), "holds": holds(rows), "delay, cycles per layer": delay_cycles, **rows}


def ask(server: Server, steps: Sequence[Step], scale: Scale) -> tuple[list[list[int]], int]:
    """(tokens of every answer, prompt tokens that were cached), one call at a time, with recorded outputs in the prompts."""
    tokens, answers, hits = Tokens(scale.vocabulary, scale.divisor), list[list[int]](), 0
    for step in steps:
        if step.kind == "begin":
            body = request(step, tokens.of(step.call.prompt).tolist(), len(tokens.of([step.call.output])))
            reply = server.call("POST", "/generate", body).json()
            answers.append(reply["output_ids"])
            hits += reply["meta_info"]["cached_tokens"]
    return answers, hits


def row(truth: Sequence[list[int]], answers: Sequence[list[int]], hits: int, counts: Mapping[str, int]) -> dict[str, Any]:
    """One run beside the stock server's answers."""
    differ = sum(a != b for a, b in zip(truth, answers, strict=True))
    return {"calls": len(answers), "differ": differ, "cached tokens": hits, "prefetches": counts.get("prefetches_issued", 0)}


def holds(rows: Mapping[str, Mapping[str, Any]]) -> bool:
    """Loads were prefetched and late, and no more answers differ than without the delay."""
    return rows[GUARDED]["prefetches"] > 0 and rows[GUARDED]["differ"] <= rows[PLAIN]["differ"]


def verdict(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """What the rows show, in one sentence."""
    guarded, unguarded = rows[GUARDED], rows[UNGUARDED]
    if not guarded["prefetches"]:
        return "Shows nothing: no load was prefetched; use a smaller device pool."
    if not holds(rows):
        return f"Fails: {guarded['differ']} of {guarded['calls']} answers differ when loads are late, {rows[PLAIN]['differ']} when not."
    same = f"Holds: with {guarded['prefetches']} prefetches and late loads {guarded['calls'] - guarded['differ']} of {guarded['calls']}"
    if unguarded["differ"] <= guarded["differ"]:
        return f"{same} answers are the stock server's, but so they are without the wait: make the delay longer to see what it prevents."
    return f"{same} answers are the stock server's; without the wait {unguarded['differ']} differ."
