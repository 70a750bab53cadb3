"""Two tensor-parallel ranks under SGLang's consensus checker, through mixed requests, aborts, and knobs turned at random: the long run.

    make rank-agreement [ARGS="--requests 500 --seed 5"]

The checker compares every entry point of the cache across ranks, arguments and results, and ends the server at the first difference.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pbkv_sglang_cpu.model import make_model

from pbkv.control.client import ControlClient
from pbkv.events.schema import CALL_STATUS, PREFETCH_RESULTS
from tests.server.mixed import Step, mixed, play
from tests.server.turning import Turner
from tests.support.server import Events, Server, running_server, wait_for


@dataclass(frozen=True)
class Told:
    """What the run went through."""

    answers: int
    aborted: int
    turned: int
    gaps: int
    events: Counter[str]
    prefetches: Counter[str]
    retired: int


@contextmanager
def two_ranks(model: Path) -> Iterator[Server]:
    """A server of two ranks with the checker on; fails when the checker ended it."""
    checker = {"SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1"}
    with running_server(model, config={"server": "tp2"}, max_total_tokens=3072, hicache_ratio=4, tp=2, env=checker) as server:
        yield server
        assert server.alive(), server.log()[-4000:]
        assert "Rank consensus checker is enabled" in server.log()


def agree(server: Server, steps: Sequence[Step], *, seed: int, every: int) -> Told:
    """Play the steps with knobs turned every so many, then let all workflows retire."""
    turner, events = Turner(server.url, seed), Events(server.state()["events"])
    answers = play(server, steps, lambda n: turner.turn() if n % every == every - 1 else None)
    ControlClient(server.url, actor="test").set({"retire_idle_s": 1})
    wait_for(lambda: server.state()["workflows"] == 0)
    state = server.state()
    assert not state["faults"], state["fault"]
    seen = events.drain()
    events.close()
    aborted = sum(CALL_STATUS[c["status"]] == "aborted" for c in seen.rows["call"])
    prefetches = Counter(PREFETCH_RESULTS[p["result"]] for p in seen.rows["prefetch"])
    return Told(len(answers), aborted, turner.turned, seen.gaps, seen.counts(), prefetches, state["counts"]["retired_workflows"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, two_ranks(make_model(Path(folder) / "tiny")) as server:
        told = agree(server, mixed(args.seed, args.requests), seed=args.seed, every=5)
    loads = ", ".join(f"{told.prefetches[r]} {r}" for r in ("issued", "completed", "used"))
    print(f"two ranks agreed through {told.answers} answers, {told.aborted} aborted calls, {told.turned} changes of knobs,")
    print(f"{told.events['eviction']} evictions, prefetches {loads}, {told.retired} retired workflows; {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
