"""What a victim costs with everything that keeps the order: new predictions, scores, queue entries, and the choice. Policy core alone.

    python -m tests.benchmarks.bench_scores [--quick] [--json]
    -> {"us_per_victim": {leaves: {policy: us}}, "us_per_call": {...}, "full_sort_us": {leaves: us}}

`leaves` evictable leaves of `leaves / 10` live workflows. Each round one workflow makes a call: a new prediction (made beforehand, so that
only what follows from it counts) gives all its nodes new scores, the call adds two leaves, and two victims make room for them. CPU time of
the thread over all rounds, by victims; `lru`, which has no scores, shows what bookkeeping of a call takes. The yardstick is what a full
sort for one victim would take.
"""

import argparse
import json
import random
import sys
import time
from typing import Any

from pbkv.eviction.catalog import POLICIES
from pbkv.identity import CallIdentity
from pbkv.knobs import K_MAX, KnobSet
from pbkv.manager import CacheManager
from pbkv.predictor.base import Moment, Prediction
from pbkv.record import NodeRecord

AGENTS = 8
LEAVES_PER_WORKFLOW = 10
VICTIMS = 2


class Dealt:
    """Deals predictions made beforehand."""

    version, at_reply = 1, False

    def __init__(self, rng: random.Random) -> None:
        self._dealt = [_prediction(rng) for _ in range(256)]
        self._next = 0

    def observe(self, path: Any, agent: int) -> None:
        """Learns nothing."""

    def predict(self, moment: Moment) -> Prediction:
        self._next += 1
        return self._dealt[self._next % 256]


def _prediction(rng: random.Random) -> Prediction:
    visits, ends, alive = [], [], 1.0
    for _ in range(K_MAX):
        weights = [rng.random() ** 4 for _ in range(AGENTS)]
        end = 0.05 * alive
        visits.append({a: (alive - end) * w / sum(weights) for a, w in enumerate(weights)})
        ends.append(end)
        alive -= end
    return Prediction(tuple(visits), tuple(ends))


class Node:
    """As much of a tree node as policies see."""

    def __init__(self, clock: float) -> None:
        self.last_access_time, self.parent = clock, None


class Flat:
    """A tree of leaves on the device alone."""

    def tier_of(self, record: NodeRecord) -> str:
        return "device"

    def parent_of(self, record: NodeRecord) -> int:
        return 0

    def tokens_of(self, record: NodeRecord) -> tuple[int, int]:
        return record.tokens, 0

    def is_device_leaf(self, record: NodeRecord) -> bool:
        return False


class World:
    """`leaves` leaves, LEAVES_PER_WORKFLOW per live workflow."""

    def __init__(self, policy: str, leaves: int) -> None:
        self.rng = random.Random(0)
        knobs = KnobSet()
        knobs.values.update(policy=policy, prefetch="off")
        self.manager = CacheManager(Flat(), knobs, Dealt(self.rng), bytes_per_token=1)
        self.clock, self.ids = 0.0, 0
        self.workflows = [f"w{n}" for n in range(leaves // LEAVES_PER_WORKFLOW)]
        while len(self.manager.device) < leaves:
            self.call(VICTIMS)

    def call(self, added: int) -> None:
        """A call of some workflow, which reads its nodes and adds leaves."""
        state = self.manager.state
        workflow, agent = state.begin_call(CallIdentity(self.rng.choice(self.workflows), f"a{self.rng.randrange(AGENTS)}", final=False))
        path = [record for record in workflow.records if agent in record.live[workflow].agents][-2:]
        state.touch(workflow, agent, [*path, *(self._leaf() for _ in range(added))])
        state.end_call(workflow)

    def _leaf(self) -> NodeRecord:
        self.clock += 1
        self.ids += 1
        record = NodeRecord(Node(self.clock), self.ids, 64)
        self.manager.device.add(record)
        return record

    def evict(self, victims: int) -> None:
        """Choose and drop so many."""
        for _ in range(victims):
            victim = self.manager.next_device_victim()
            assert victim is not None
            self.manager.removed(victim)
        self.manager.end_device_walk()


def measure(policy: str, leaves: int, rounds: int) -> tuple[float, float]:
    """(microseconds per victim with all that keeps the order, microseconds per call without the victims)."""
    world = World(policy, leaves)
    for _ in range(rounds // 4):
        world.call(VICTIMS)
        world.evict(VICTIMS)
    calls = victims = 0
    for _ in range(rounds):
        started = time.thread_time_ns()
        world.call(VICTIMS)
        between = time.thread_time_ns()
        world.evict(VICTIMS)
        victims += time.thread_time_ns() - between
        calls += between - started
    return (calls + victims) / rounds / VICTIMS / 1e3, calls / rounds / 1e3


def full_sort_us(leaves: int) -> float:
    """What sorting all leaves for one victim would take."""
    world = World("he", leaves)
    records, key = list(world.manager.device._alive.values()), world.manager.policy.key
    started = time.thread_time_ns()
    sorted(records, key=key)
    return (time.thread_time_ns() - started) / 1e3


def run(sizes: list[int], rounds: int) -> dict[str, Any]:
    """All policies at all sizes."""
    found = {str(n): {p: measure(p, n, rounds) for p in POLICIES} for n in sizes}
    return {
        "us_per_victim": {n: {p: round(v[0], 2) for p, v in by.items()} for n, by in found.items()},
        "us_per_call": {n: {p: round(v[1], 2) for p, v in by.items()} for n, by in found.items()},
        "full_sort_us": {str(n): round(full_sort_us(n), 1) for n in sizes},
    }


def table(result: dict[str, Any]) -> str:
    """The same for people."""
    lines = [f"{'leaves':>8}  {'policy':<12}{'us per victim':>15}{'of which calls':>16}{'full sort, us':>15}"]
    for size, by in result["us_per_victim"].items():
        for policy, us in by.items():
            share = result["us_per_call"][size][policy] / VICTIMS
            lines.append(f"{size:>8}  {policy:<12}{us:>15.1f}{share:>16.1f}{result['full_sort_us'][size]:>15.0f}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10,000 leaves, fewer rounds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    result = run([10_000] if options.quick else [10_000, 100_000], 1_000 if options.quick else 4_000)
    print(json.dumps(result, indent=2) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
