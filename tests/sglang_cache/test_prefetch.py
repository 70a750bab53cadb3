"""Prefetch on the real cache: the right bytes, never at the cost of live cache, and no batch reads a load in flight."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from pbkv.events.schema import BY_NAME
from pbkv.events.wire import decode
from pbkv.prefetch.planner import COOLDOWN_STEPS
from pbkv.sglang.cache import PbkvCache
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.moves import sequence

SIZE = 320
A, B, C = (list(range(n * 1000, n * 1000 + 80)) for n in (1, 2, 3))


def bench_with(**options: Any) -> Bench:
    """A cache whose predictor knows that every agent is followed by itself, so that what a live workflow used is wanted again."""
    bench = Bench(**{"plugin": {}, "page": 4, "size": SIZE, "host": 2.0, "observe": True, **options})
    for _ in range(30):
        bench.runtime.predictor.observe([0], 0)
    return bench


def demote(bench: Bench, tokens: list[int]) -> None:
    """Put what is cached of `tokens` on the host alone, long enough ago for the cooldown."""
    bench.settle()
    records = bench.records(tokens)
    while any(not r.node.evicted for r in records):
        assert bench.evict(1)
    bench.runtime.step += COOLDOWN_STEPS


def request(new_tokens: int = 4) -> Any:
    return SimpleNamespace(sampling_params=SimpleNamespace(max_new_tokens=new_tokens), output_ids=[])


def step(bench: Bench, mode: ForwardMode = ForwardMode.DECODE, *, waiting: int = 0, requests: int = 1) -> None:
    """One turn of the scheduler's loop with a batch of `mode`."""
    batch = SimpleNamespace(forward_mode=mode, reqs=[request() for _ in range(requests)], extend_num_tokens=0)
    scheduler = SimpleNamespace(waiting_queue=[None] * waiting, running_batch=batch)
    bench.cache.check_hicache_events()
    bench.runtime.after_plan(scheduler, batch)


def resident(bench: Bench, tokens: list[int]) -> int:
    return int(bench.match(tokens).device_prefix_len)


def prefetch_rows(bench: Bench) -> list[tuple[str, str]]:
    kind = BY_NAME["prefetch"]
    bench.runtime.telemetry.end_step(1)
    rows = [row for p in bench.sink.payloads for row in decode(p).tables.get("prefetch", ())]
    return [(kind.field("phase").values[r["phase"]], kind.field("result").values[r["result"]]) for r in rows]


def test_what_a_live_workflow_will_read_comes_back_with_its_bytes() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    assert resident(bench, A) == 0
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 1
    step(bench)  # reaps the load
    assert resident(bench, A) == len(A)
    assert bench.content_ok(A)
    bench.check()
    bench.close()


def test_what_left_the_host_while_room_was_made_is_not_loaded() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    (record,) = bench.records(A)
    assert bench.runtime.loads.load_tokens(record) == len(A)
    bench.cache.evict_host(len(A))
    assert not bench.runtime.loads.load(record)
    assert not bench.runtime.guard.fault


def test_a_load_brings_its_evicted_ancestors() -> None:
    bench = bench_with()
    longer = [*A, *range(9000, 9040)]
    bench.call("w", "a", A)
    bench.call("w", "a", longer)
    demote(bench, longer)
    for _ in range(3):
        step(bench)
    assert resident(bench, longer) == len(longer)
    assert bench.content_ok(longer)
    bench.check()
    bench.close()


def test_several_loads_of_one_step_are_right_too() -> None:
    bench = bench_with()
    for name, tokens in (("x", A), ("y", B), ("z", C)):
        bench.call(name, "a", tokens)
    for tokens in (A, B, C):
        demote(bench, tokens)
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 3
    step(bench)
    for tokens in (A, B, C):
        assert resident(bench, tokens) == len(tokens)
        assert bench.content_ok(tokens)
    bench.close()


@pytest.mark.parametrize(
    ("mode", "waiting"), [(ForwardMode.EXTEND, 0), (ForwardMode.MIXED, 0), (ForwardMode.IDLE, 0), (ForwardMode.DECODE, 1)]
)
def test_only_in_pure_decode_steps(mode: ForwardMode, waiting: int) -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    step(bench, mode, waiting=waiting)
    assert bench.runtime.counts["prefetches_issued"] == 0
    bench.close()


@pytest.mark.parametrize("knobs", [{"prefetch": "off"}, {"prefetch_budget": 0}, {"prefetch_budget": 1000}])
def test_knobs_hold_it_back(knobs: dict[str, Any]) -> None:
    bench = bench_with(plugin=knobs)
    bench.call("w", "a", A)
    demote(bench, A)
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 0
    bench.close()


def test_not_again_what_was_just_evicted() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    bench.runtime.step -= COOLDOWN_STEPS
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 0
    assert ("decision", "skip_just_evicted") in prefetch_rows(bench)
    for _ in range(COOLDOWN_STEPS):
        step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 1
    bench.close()


def test_not_while_the_link_is_busy() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    bench.put(B)
    bench.cache.flush_pending_backups()
    assert bench.cache.cache_controller.ack_write_queue
    bench.runtime.loads.step(SimpleNamespace(waiting_queue=[]), SimpleNamespace(forward_mode=ForwardMode.DECODE, reqs=[]))
    assert bench.runtime.counts["prefetches_issued"] == 0
    assert ("decision", "skip_busy_link") in prefetch_rows(bench)
    bench.close()


def fill(bench: Bench, workflow: str, first: int, *, leave: int, final: bool = False) -> list[list[int]]:
    """Calls of 40 tokens each until at most `leave` tokens are free."""
    made: list[list[int]] = []
    while bench.allocator.available_size() >= leave + 40:
        tokens = list(range(first + 100 * len(made), first + 100 * len(made) + 40))
        bench.call(f"{workflow}{len(made)}", "a", tokens, final=final)
        made.append(tokens)
    bench.settle()
    return made


def test_live_cache_is_never_evicted_for_a_prefetch() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    live = fill(bench, "live", 50_000, leave=0)
    for _ in range(5):
        step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 0
    assert all(resident(bench, tokens) == 40 for tokens in live)
    assert prefetch_rows(bench) == [("decision", "skip_low_value")], "it would go next: longest unused among equals"
    bench.check()
    bench.close()


def test_retired_room_is_reclaimed_and_live_cache_stays() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    live = fill(bench, "live", 50_000, leave=160)
    ended = fill(bench, "ended", 80_000, leave=0, final=True)
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 1
    step(bench)
    assert resident(bench, A) == len(A)
    assert bench.content_ok(A)
    assert all(resident(bench, tokens) == 40 for tokens in live)
    assert sum(resident(bench, tokens) == 0 for tokens in ended) == 3  # 80 tokens and room for the running call
    bench.check()
    bench.close()


def test_retired_room_that_a_call_still_reads_is_not_reclaimed() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    fill(bench, "live", 50_000, leave=160)
    ended = fill(bench, "ended", 80_000, leave=0, final=True)
    locks = [bench.cache.lock(bench.match(tokens).last_device_node) for tokens in ended]
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 0
    assert all(resident(bench, tokens) == 40 for tokens in ended)
    for lock in locks:
        bench.cache.unlock(lock)
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 1
    bench.check()
    bench.close()


def test_the_budget_is_bytes_of_one_step() -> None:
    """Three loads of 80 tokens are wanted and two are paid for; the third comes with the next step's budget."""
    bench = bench_with()
    for name, tokens in (("x", A), ("y", B), ("z", C)):
        bench.call(name, "a", tokens)
    for tokens in (A, B, C):
        demote(bench, tokens)
    budget = (2 * len(A) + 79) * bench.runtime.bytes_per_token
    bench.runtime.knobs.apply({"prefetch_budget": budget}, if_version=1, step=0, actor="test")
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 2
    assert ("decision", "skip_budget") in prefetch_rows(bench)
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 3
    bench.close()


def test_room_for_running_calls_is_left() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    fill(bench, "live", 50_000, leave=80)
    assert bench.allocator.available_size() == 80
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 0
    bench.close()


def test_nothing_is_loaded_for_workflows_that_ended() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    bench.runtime.state.close("w")
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 0
    assert len(bench.runtime.prefetch.queue) == 0
    bench.close()


def test_the_most_valuable_first_also_when_its_score_fell() -> None:
    """A new prediction may raise the use at the next step (Eq. 1) and lower the score (Eq. 2): the queue must hear of both."""
    bench = bench_with()
    bench.runtime.state.predictor = predictor = Scripted(({0: 0.1}, {0: 0.9}, {0: 0.9}))
    bench.call("late", "a", A)
    predictor.visits = ({0: 0.3}, {}, {})
    bench.call("other", "a", B)
    demote(bench, A)
    demote(bench, B)
    bench.check()
    queue, (a,), (b,) = bench.runtime.prefetch.queue, bench.records(A), bench.records(B)
    assert queue.peek() is b
    before = a.score
    predictor.visits = ({0: 0.5}, {}, {})
    bench.call("late", "a", [1])
    assert a.score < before
    assert a.value > b.value
    bench.check()
    assert queue.peek() is a
    bench.close()


class Scripted:
    """Predicts what it is told."""

    version = 1
    at_reply = False

    def __init__(self, visits: Any) -> None:
        self.visits = visits

    def observe(self, path: Any, agent: int) -> None:
        """Learns nothing."""

    def predict(self, moment: Any) -> Any:
        from pbkv.predictor.base import Prediction

        return Prediction(self.visits, (0.0,) * len(self.visits))


# ---- loads in flight -------------------------------------------------------------------------------------------------------------


class Held:
    """The finish event of a copy that lasts until it is released."""

    def __init__(self) -> None:
        self.done = False

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        assert self.done, "somebody waits for a load that is still running"


def load_in_flight(bench: Bench) -> Held:
    """A prefetch whose copy has not ended."""
    bench.call("w", "a", A)
    demote(bench, A)
    step(bench)
    (ack,) = bench.cache.cache_controller.ack_load_queue
    held = Held()
    bench.cache.cache_controller.ack_load_queue[0] = ack._replace(finish_event=held)
    return held


def a_batch_would_read_unwritten_kv(bench: Bench) -> bool:
    """A prefill that hits a node in flight is told to wait only by ready_to_load_host_cache() >= 0."""
    return resident(bench, A) == len(A) and bool(bench.cache.ongoing_load_back) and bench.cache.ready_to_load_host_cache() < 0


def test_a_batch_waits_for_a_prefetch_in_flight() -> None:
    bench = bench_with()
    held = load_in_flight(bench)
    counter = bench.cache.cache_controller.layer_done_counter
    for _ in range(3):
        bench.cache.check_hicache_events()
        assert bench.cache.ready_to_load_host_cache() == counter.producer_index >= 0
        assert not a_batch_would_read_unwritten_kv(bench)
    held.done = True
    bench.cache.check_hicache_events()
    assert bench.cache.ready_to_load_host_cache() == -1
    assert ("completion", "completed") in prefetch_rows(bench)
    bench.close()


def test_without_the_override_a_batch_would_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above must be able to fail: with SGLang's own method the very same state says "no wait"."""
    bench = bench_with()
    held = load_in_flight(bench)
    assert not a_batch_would_read_unwritten_kv(bench)
    monkeypatch.setattr(PbkvCache, "ready_to_load_host_cache", UnifiedRadixCache.ready_to_load_host_cache)
    assert a_batch_would_read_unwritten_kv(bench)
    held.done = True
    bench.cache.check_hicache_events()
    bench.close()


def test_a_demand_load_keeps_its_own_index() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    assert bench.cache.load_back(bench.match(A).best_match_node)
    index = bench.cache.ready_to_load_host_cache()
    assert index == bench.cache.cache_controller.layer_done_counter.producer_index
    bench.settle()
    assert bench.cache.ready_to_load_host_cache() == -1
    bench.close()


def test_without_a_host_pool_nothing_waits() -> None:
    bench = Bench(plugin={}, page=4, size=SIZE, host=None)
    assert bench.cache.ready_to_load_host_cache() == UnifiedRadixCache.ready_to_load_host_cache(bench.cache)
    step(bench)
    bench.check()


def test_a_node_in_flight_cannot_be_evicted() -> None:
    bench = bench_with()
    held = load_in_flight(bench)
    bench.evict(SIZE)
    assert resident(bench, A) == len(A)
    held.done = True
    step(bench)
    bench.check()
    bench.evict(SIZE)
    assert resident(bench, A) == 0
    bench.close()


def test_no_second_prefetch_while_one_is_in_flight() -> None:
    bench = bench_with()
    held = load_in_flight(bench)
    bench.call("x", "a", B)
    demote(bench, B)
    for _ in range(3):
        step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 1
    held.done = True
    step(bench)
    assert bench.runtime.counts["prefetches_issued"] == 2
    bench.close()


# ---- outcomes --------------------------------------------------------------------------------------------------------------------


def outcomes(bench: Bench) -> list[str]:
    return [result for phase, result in prefetch_rows(bench) if phase == "outcome"]


def test_a_prefetch_that_is_read_was_used() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    step(bench)
    step(bench)
    for record in bench.records(A):
        bench.runtime.prefetch.used(record)
        bench.runtime.prefetch.used(record)
    assert outcomes(bench) == ["used"]
    bench.close()


def test_a_prefetch_evicted_before_it_is_read_was_for_nothing() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    step(bench)
    step(bench)
    bench.evict(SIZE)
    assert outcomes(bench) == ["evicted_unused"]
    bench.close()


def test_a_prefetch_read_in_flight_was_late() -> None:
    bench = bench_with()
    held = load_in_flight(bench)
    (record,) = bench.records(A)
    bench.runtime.prefetch.used(record)
    held.done = True
    step(bench)
    assert outcomes(bench) == ["late"]
    assert not bench.runtime.prefetch._resident
    bench.close()


def test_a_flush_ends_what_was_loaded_for_nothing() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    step(bench)
    step(bench)
    bench.flush()
    assert outcomes(bench) == ["evicted_unused"]
    bench.check()
    bench.close()


def test_the_window_carries_the_bytes_of_the_prefetch() -> None:
    bench = bench_with()
    bench.call("w", "a", A)
    demote(bench, A)
    step(bench)
    step(bench)
    step(bench, ForwardMode.EXTEND)
    bench.runtime.telemetry.end_step(1)
    rows = [row for p in bench.sink.payloads for row in decode(p).tables.get("pcie_window", ())]
    assert sum(int(r["h2d_bytes"]) for r in rows) == len(A) * bench.runtime.bytes_per_token
    bench.close()


@pytest.mark.parametrize("policy", ["lru", "lae", "he"])
def test_random_lives_with_prefetch_lose_only_retired_cache_to_it(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_with(plugin={"policy": policy}, size=160, observe=False)
    rng, runtime, victims = random.Random(50), bench.runtime, list[Any]()
    choose = runtime.next_device_victim

    def next_device_victim() -> Any:
        victim = choose()
        if victim is not None:
            victims.append(victim)
        return victim

    monkeypatch.setattr(runtime, "next_device_victim", next_device_victim)
    for _ in range(400):
        tokens = sequence(rng, 16)
        bench.call(f"w{rng.randrange(6)}", "a", tokens, final=rng.random() < 0.15)
        assert bench.content_ok(tokens)
        bench.settle()
        victims.clear()
        for _ in range(rng.randrange(30)):
            step(bench)
        assert all(record.retired for record in victims)
        bench.check()
    assert runtime.counts["prefetches_issued"] > 5
    bench.close()
