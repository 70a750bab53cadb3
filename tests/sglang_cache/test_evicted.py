"""What is counted as evicted is what left the device: checked against SGLang's own pool, also where the host has no room."""

import random
from typing import Any

import pytest

from pbkv.events.schema import BY_NAME
from pbkv.events.wire import decode
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.moves import sequence

PAGE = 4
TIERS = BY_NAME["eviction"].field("to_tier").values


def rows(bench: Bench) -> list[tuple[int, str]]:
    """(tokens, to_tier) of every eviction from the device."""
    bench.runtime.telemetry.end_step(1)
    found = [row for p in bench.sink.payloads for row in decode(p).tables.get("eviction", ())]
    return [(int(r["tokens"]), TIERS[r["to_tier"]]) for r in found if TIERS[r["from_tier"]] == "device"]


class Freed:
    """Device tokens that evictions gave back, read off the allocator around each eviction."""

    def __init__(self, bench: Bench) -> None:
        self.tokens, self._evict, self._free = 0, bench.cache._evict_components, bench.allocator.available_size
        bench.cache._evict_components = self._watched

    def _watched(self, *args: Any, **kwargs: Any) -> None:
        before = self._free()
        self._evict(*args, **kwargs)
        self.tokens += self._free() - before


@pytest.mark.parametrize("host", [None, 0.3, 1.5])
@pytest.mark.parametrize("write_policy", ["write_through", "write_through_selective", "write_back"])
def test_counts_and_events_are_what_the_pool_got_back(write_policy: str, host: float | None) -> None:
    bench = Bench(plugin={"policy": "he"}, page=PAGE, size=24 * PAGE, host=host, write_policy=write_policy, observe=True)
    freed, rng = Freed(bench), random.Random(31)
    locks: list[Any] = []
    for _ in range(300):
        bench.call(f"w{rng.randrange(6)}", rng.choice("abc"), sequence(rng, 3 * PAGE), final=rng.random() < 0.1)
        if rng.random() < 0.6:
            bench.settle()
        if host is not None and rng.random() < 0.2:
            found = bench.match(sequence(rng, 3 * PAGE))
            if found.host_hit_length and not locks:  # what is locked on the host cannot make room for a write back
                locks.append((found.best_match_node, bench.cache.tree_core.inc_host_lock_ref(found.best_match_node)))
        elif locks and rng.random() < 0.3:
            node, lock = locks.pop()
            bench.cache.tree_core.dec_host_lock_ref(node, lock.to_dec_params())
        bench.check()
    told = rows(bench)
    assert bench.runtime.counts["evicted_tokens"] == freed.tokens == sum(tokens for tokens, _ in told) > 500
    assert bench.runtime.counts["evicted_nodes"] == len(told)
    assert {tier for _, tier in told} <= {"host", "none"}
    bench.close()


def test_a_write_back_without_room_is_a_drop_and_one_that_stays_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(plugin={"policy": "lru"}, page=PAGE, size=32 * PAGE, host=1.5, write_policy="write_back", observe=True)
    tokens = list(range(12 * PAGE))
    bench.call("w", "a", tokens)
    (record,) = bench.records(tokens)
    monkeypatch.setattr(bench.cache, "_execute_and_commit_kv_backup", lambda *args, **kwargs: 0)
    with monkeypatch.context() as patched:
        patched.setattr(bench.cache, "_drop_subtree_no_host", lambda *args: False)
        assert bench.evict(1) == 0
    assert bench.runtime.counts["evicted_nodes"] == 0
    assert record in bench.runtime.device, "it may be tried again"
    bench.check()
    assert bench.evict(1) == len(tokens)
    assert rows(bench) == [(len(tokens), "none")]
    assert bench.runtime.counts["evicted_tokens"] == len(tokens)
    bench.check()
    bench.close()
