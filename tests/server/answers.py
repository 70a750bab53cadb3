"""The same greedy answers with the plugin as without it, at every policy: the long run.

    make same-answers [ARGS="--requests 500 --pages 16 --writes write_through --policies he,first_use"]

For each page size and write policy a stock server answers the requests once; then a server with the plugin answers them under each policy,
changed live and without a flush between. Prints a table (Markdown) and ends with 1 when an answer differs or when nothing happened to the
cache that could have made one differ.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pbkv_sglang_cpu.model import make_model

from pbkv.control.client import ControlClient
from pbkv.events.schema import CALL_STATUS, PREFETCH_RESULTS
from pbkv.eviction.catalog import POLICIES
from tests.server.mixed import Step, mixed, play
from tests.support.server import Events, Server, running_server

PAGES, WRITES = (1, 16, 64), ("write_through", "write_through_selective", "write_back")
POOL, RATIO = 3072, 4
COLUMNS = (
    "page", "write policy", "policy", "answers", "different", "aborted", "tokens evicted", "tokens hit on the host",
    "prefetches issued, used", "s",
)


@dataclass(frozen=True)
class Proof:
    """What happened to the cache while the answers were made."""

    answers: int
    different: int
    aborted: int
    evicted_tokens: int
    host_hit_tokens: int
    prefetches: dict[str, int]
    gaps: int

    def cells(self) -> tuple[object, ...]:
        """Its columns of the table."""
        loads = f"{self.prefetches.get('issued', 0):,}, {self.prefetches.get('used', 0):,}"
        return self.answers, self.different, self.aborted, f"{self.evicted_tokens:,}", f"{self.host_hit_tokens:,}", loads

    @property
    def same(self) -> bool:
        """Every answer the same, and not for want of evictions."""
        return not self.different and not self.gaps and self.evicted_tokens > POOL

    @property
    def sound(self) -> bool:
        """Nor for want of hits on what was evicted."""
        return self.same and self.host_hit_tokens > 0


def compare(server: Server, steps: Sequence[Step], wanted: Sequence[Any], policy: str) -> Proof:
    """Play the steps under the policy and hold the answers against those of the stock server."""
    ControlClient(server.url, actor="test").set({"policy": policy})
    events = Events(server.state()["events"])
    found = play(server, steps)
    seen = events.drain()
    events.close()
    calls = seen.rows["call"]
    return Proof(
        len(found), sum(a != b for a, b in zip(found, wanted, strict=True)),
        sum(CALL_STATUS[c["status"]] == "aborted" for c in calls), sum(e["tokens"] for e in seen.rows["eviction"]),
        sum(c["host_hit_tokens"] for c in calls), Counter(PREFETCH_RESULTS[p["result"]] for p in seen.rows["prefetch"]), seen.gaps,
    )


def shape(page: int, write: str) -> dict[str, Any]:
    """Options of `running_server` for a page size and a write policy."""
    return {"max_total_tokens": POOL, "hicache_ratio": RATIO, "page_size": page, "extra": ("--hicache-write-policy", write)}


@contextmanager
def plugin_server(model: Path, page: int, write: str) -> Iterator[Server]:
    """A server with the plugin that speaks up about leaks also while it is busy."""
    env = {"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1"}
    with running_server(model, config={"server": "answers"}, env=env, **shape(page, write)) as server:
        yield server


def run(model: Path, steps: Sequence[Step], page: int, write: str, policies: Sequence[str]) -> Iterator[tuple[str, Proof]]:
    """(policy, proof) of one configuration."""
    with running_server(model, **shape(page, write)) as stock:
        wanted = play(stock, steps)
    with plugin_server(model, page, write) as server:
        for policy in policies:
            yield policy, compare(server, steps, wanted, policy)
        state = server.state()
        assert server.alive() and not state["faults"], state["fault"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--pages", default=",".join(map(str, PAGES)))
    parser.add_argument("--writes", default=",".join(WRITES))
    parser.add_argument("--policies", default=",".join(POLICIES))
    args = parser.parse_args()
    steps, sound = mixed(args.seed, args.requests, pool=POOL), True
    print("|", " | ".join(COLUMNS), "|")
    print("|" + "---|" * len(COLUMNS), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "tiny")
        for page in map(int, args.pages.split(",")):
            for write in args.writes.split(","):
                started = time.monotonic()
                for policy, p in run(model, steps, page, write, args.policies.split(",")):
                    cells = page, write, policy, *p.cells(), f"{time.monotonic() - started:.0f}"
                    print("|", " | ".join(map(str, cells)), "|", flush=True)
                    sound, started = sound and p.sound, time.monotonic()
    print("sound" if sound else "NOT SOUND")
    return 0 if sound else 1


if __name__ == "__main__":
    raise SystemExit(main())
