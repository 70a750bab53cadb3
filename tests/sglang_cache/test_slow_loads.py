"""Loads whose copies last: a batch reads wrong KV where it does not wait, and the plugin makes it wait. Seen in the bytes themselves."""

import random

import pytest
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from pbkv.sglang.cache import PbkvCache
from tests.sglang_cache.moves import sequence
from tests.sglang_cache.slow_loads import SlowLoads
from tests.sglang_cache.test_prefetch import A, B, bench_with, demote, step


def prefetched(size: int = 96) -> SlowLoads:
    """A prefetch of A under way; in the smallest pool into slots that held B before."""
    bench = bench_with(size=size)
    slow = SlowLoads(bench)
    bench.call("w", "a", A)
    demote(bench, A)
    bench.call("x", "a", B, final=True)
    demote(bench, B)
    bench.runtime.step += 1000
    step(bench)
    assert len(slow.running) == 1
    assert bench.runtime.counts["prefetches_issued"] == 1
    return slow


def test_a_batch_that_waits_reads_its_own_kv() -> None:
    slow = prefetched()
    assert slow.bench.match(A).device_prefix_len == len(A), "it looks resident"
    assert not slow.bench.content_ok(A), "it is not there"
    assert slow.read(A)
    assert slow.bench.content_ok(A)
    slow.bench.close()


def test_without_the_override_it_reads_what_others_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PbkvCache, "ready_to_load_host_cache", UnifiedRadixCache.ready_to_load_host_cache)
    slow = prefetched()
    assert not slow.read(A)
    slow.finish_one()
    assert slow.read(A)
    slow.bench.close()


def test_a_demand_load_behind_a_prefetch_waits_for_both() -> None:
    slow = prefetched(320)
    bench = slow.bench
    longer = [*A, *range(9000, 9040)]
    bench.call("y", "a", longer)
    assert slow.read(longer)
    assert not slow.running
    bench.close()


def test_no_prefetch_without_a_free_slot_of_the_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's counter has three slots for loads; one more would overwrite the events that batches wait on."""
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    with monkeypatch.context() as patched:
        patched.setattr(bench.cache, "has_free_load_back_slot", lambda: False)
        step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 0
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 1
    bench.close()


def lives(slow: SlowLoads, seed: int, moves: int) -> int:
    """Workflows come and go, prefetches start in decode steps, copies end when they will, and batches read whatever they find.
    The number of reads that were wrong.
    """
    bench, rng, wrong = slow.bench, random.Random(seed), 0
    for n in range(moves):
        tokens = sequence(rng, 16)
        if rng.random() < 0.5:
            slow.counter.set_consumer(bench.cache.ready_to_load_host_cache())  # a call's own prefill
            bench.call(f"w{rng.randrange(6)}", "a", tokens, final=rng.random() < 0.2)
        if rng.random() < 0.5 and slow.running:
            slow.finish_one()
        bench.runtime.step += rng.randrange(100)
        step(bench, rng.choice((ForwardMode.DECODE, ForwardMode.DECODE, ForwardMode.EXTEND)))
        if n % 3 == 0 and bench.cache.has_free_load_back_slot():
            wrong += not slow.read(sequence(rng, 16))
    while slow.running:
        slow.finish_one()
    bench.settle()
    return wrong


@pytest.mark.parametrize("mode", ["conservative", "aggressive"])
@pytest.mark.parametrize("policy", ["lae", "he", "first_use"])
def test_no_read_is_ever_wrong(policy: str, mode: str) -> None:
    bench = bench_with(plugin={"policy": policy, "prefetch": mode}, size=160)
    slow = SlowLoads(bench)
    assert lives(slow, 71, 900) == 0
    assert bench.runtime.counts["prefetches_issued"] > 10
    bench.check()
    bench.close()


def test_the_same_lives_go_wrong_without_the_override(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above must be able to fail."""
    monkeypatch.setattr(PbkvCache, "ready_to_load_host_cache", UnifiedRadixCache.ready_to_load_host_cache)
    bench = bench_with(plugin={"policy": "lae"}, size=160)
    slow = SlowLoads(bench)
    assert lives(slow, 71, 900) > 0
    bench.close()
