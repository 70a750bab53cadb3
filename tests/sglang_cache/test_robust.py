"""What callers may do to the cache: come in masses, in parallel, under each other's names, in namespaces, and leave at any moment."""

import gc
import random
import tracemalloc
from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH
from sglang.srt.mem_cache.radix_cache import RadixKey

from pbkv import manager as manager_module
from pbkv.events import writer as writer_module
from pbkv.eviction.catalog import POLICIES
from pbkv.identity import MAX_NAME
from pbkv.sglang import pages as pages_module
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.moves import sequence
from tests.sglang_cache.test_calls import rows

PAGE = 4
A = list(range(100, 148))


def request(bench: Bench, tokens: list[int], *, custom: Any = None, session: str | None = None) -> Any:
    """A request as SGLang makes it, not yet in the queue; its KV enters the tree with `enter`."""
    times = SimpleNamespace(scheduler_recv_time=10.0, forward_entry_time=10.5, prefill_finished_time=11.0)
    return SimpleNamespace(
        rid="r", last_node=None, sampling_params=SimpleNamespace(custom_params=custom, max_new_tokens=8), kv_hints=None, session_id=session,
        cached_tokens=0, cached_tokens_device=0, cached_tokens_host=0, cached_tokens_storage=0, origin_input_ids=array("q", tokens),
        output_ids=array("q"), finished_reason=None, time_stats=times, extra_key=None, cache_salt=None,
    )


def named(workflow: str, agent: str = "a", *, final: bool = False) -> dict[str, Any]:
    return {"pbkv": {"workflow": workflow, "agent": agent, "final": final}}


def enter(bench: Bench, req: Any) -> bool:
    """The request's prefill has run and its path is locked; False when there was no room."""
    node = bench.put(list(req.origin_input_ids))
    if node is None:
        return False
    req.last_node, req.lock = node, bench.cache.lock(node)
    bench.runtime.guard.run(bench.runtime.calls.checkpoint, req)
    return True


def release(bench: Bench, req: Any) -> None:
    bench.cache.unlock(req.lock)


def leave(bench: Bench, req: Any, reason: Any) -> None:
    release(bench, req)
    req.finished_reason = reason
    bench.runtime.guard.run(bench.runtime.calls.finish, req)


# ---- masses ----------------------------------------------------------------------------------------------------------------------


def test_masses_of_workflows_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every table made small: twenty times as many workflows as fit, and the last third of them costs no more memory."""
    monkeypatch.setattr(manager_module, "MAX_PAST", 100)
    monkeypatch.setattr(writer_module, "MAX_NAMES", 200)
    monkeypatch.setattr(pages_module, "MAX_SEEN", 500)
    bench = Bench(plugin={"policy": "first_use"}, page=PAGE, size=64 * PAGE, host=1.5, observe=True)
    runtime = bench.runtime
    runtime.state._max_workflows = 100
    rng, held = random.Random(61), list[int]()
    tracemalloc.start()
    for n in range(2100):
        bench.call(f"w{n}", f"agent-{n % 50}", sequence(rng, 3 * PAGE), final=rng.random() < 0.1)
        if n % 10 == 0:
            bench.settle()
            runtime.telemetry.end_step(n)
            bench.sink.payloads.clear()
        if n % 700 == 699:
            gc.collect()  # a node and its record hold each other
            held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert len(runtime.state.live) == 100
    assert len(runtime._names) <= 100
    assert len(runtime.telemetry.writer._names) <= 200
    assert len(runtime.pages._seen) <= 500
    assert held[2] - held[1] < 100_000, f"memory grows: {held}"
    assert runtime.counts["retired_workflows"] > 1900
    bench.check()
    bench.close()


@pytest.mark.parametrize("name", ["x" * 10_000_000, "\ud800", "", "\x00" * 300], ids=["huge", "half", "empty", "nul"])
def test_a_hostile_name_costs_its_attribution_and_no_memory(name: str) -> None:
    bench = Bench(plugin={}, page=PAGE, size=64 * PAGE, host=None, observe=True)
    req = request(bench, A, custom=named(name))
    assert enter(bench, req)
    leave(bench, req, FINISH_LENGTH(1))
    assert bench.runtime.counts["malformed"] == 1
    assert not bench.runtime.state.live
    session = request(bench, A, session=name or None)
    enter(bench, session)
    assert all(len(w) <= MAX_NAME for w in bench.runtime.state.live)
    assert len(b"".join(bench.sink.payloads)) < 50_000
    assert not bench.runtime.guard.fault


# ---- in parallel -----------------------------------------------------------------------------------------------------------------


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.permutations(range(10)), st.permutations(range(10)), st.integers(0, 9))
def test_ten_agents_at_once_are_one_workflow_that_ends_with_the_last_of_them(begin: list[int], end: list[int], final: int) -> None:
    bench = Bench(plugin={"policy": "he"}, page=PAGE, size=400 * PAGE, host=None)
    calls = [request(bench, [*A, *range(1000 * n, 1000 * n + 16)], custom=named("w", f"a{n}", final=n == final)) for n in range(10)]
    for n in begin:
        assert enter(bench, calls[n])
    assert bench.runtime.state.live["w"].running == 10
    assert len(bench.records(A)[0].live[bench.runtime.state.live["w"]].agents) == 10
    for n in end[:-1]:
        leave(bench, calls[n], FINISH_LENGTH(1))
        assert "w" in bench.runtime.state.live
    leave(bench, calls[end[-1]], FINISH_LENGTH(1))
    assert not bench.runtime.state.live
    assert all(node.pbkv.retired for node in bench.nodes())
    assert not bench.runtime.guard.fault
    bench.check()


class Scheduler:
    """Requests on their ways: waiting, running, retracted, gone, in any order that SGLang's scheduler allows."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.rng, self.calls = bench, random.Random(seed), bench.runtime.calls
        self.waiting: list[Any] = []
        self.running: list[Any] = []
        self.ended = 0

    def arrive(self) -> None:
        rng, who = self.rng, self.rng.random()
        name = f"w{rng.randrange(5)}"
        custom = named(name, rng.choice("abc"), final=rng.random() < 0.15) if who < 0.6 else {"pbkv": 5} if who < 0.65 else None
        req = request(self.bench, sequence(rng, 3 * PAGE), custom=custom, session=name if 0.65 <= who < 0.9 else None)
        self.bench.runtime.guard.run(self.calls.queued, req)
        self.waiting.append(req)

    def admit(self) -> None:
        if self.waiting and enter(self.bench, self.waiting[0]):
            self.running.append(self.waiting.pop(0))

    def chunk(self) -> None:
        if self.running:
            self.bench.runtime.guard.run(self.calls.checkpoint, self.rng.choice(self.running))

    def retract(self) -> None:
        if self.running:
            req = self.running.pop(self.rng.randrange(len(self.running)))
            release(self.bench, req)
            self.bench.runtime.guard.run(self.calls.queued, req)
            self.waiting.append(req)

    def finish(self) -> None:
        if self.running:
            leave(self.bench, self.running.pop(self.rng.randrange(len(self.running))), FINISH_LENGTH(1))
            self.ended += 1

    def abort_running(self) -> None:
        if self.running:
            req = self.running.pop(self.rng.randrange(len(self.running)))
            leave(self.bench, req, FINISH_ABORT("gone"))
            if self.rng.random() < 0.5:  # of a chunked prefill the client is told as well
                self.bench.runtime.guard.run(self.calls.dropped, req)
            self.ended += 1

    def abort_waiting(self) -> None:
        if self.waiting:
            self.bench.runtime.guard.run(self.calls.dropped, self.waiting.pop(self.rng.randrange(len(self.waiting))))
            self.ended += 1

    def close(self) -> None:
        self.bench.runtime.close(f"w{self.rng.randrange(5)}")

    def flush(self) -> None:
        if not self.running and not self.waiting:
            self.bench.settle()
            self.bench.flush()

    def turn(self) -> None:
        runtime = self.bench.runtime
        changes = {"policy": self.rng.choice(list(POLICIES)), "gamma": self.rng.random()}
        runtime.knobs.apply(changes, if_version=runtime.knobs.version, step=1, actor="test")
        runtime.knobs_changed(set(changes))

    def step(self) -> None:
        self.calls.prune(self.waiting)
        self.bench.settle()

    def evict(self) -> None:
        self.bench.evict(self.rng.randint(1, 60))

    def move(self) -> None:
        moves = [self.arrive] * 4 + [self.admit] * 4 + [self.finish] * 3 + [self.step] * 2 + [
            self.chunk, self.retract, self.abort_running, self.abort_waiting, self.close, self.flush, self.turn, self.evict,
        ]
        self.rng.choice(moves)()

    def begun(self, name: str) -> int:
        """Calls of the workflow that are in the server and have begun."""
        calls = [req.__dict__.get("pbkv_call") for req in self.running + self.waiting]
        return sum(call is not None and call.workflow is not None and call.workflow.name == name for call in calls)


@pytest.mark.parametrize("seed", range(6))
def test_calls_that_come_and_leave_in_every_way_are_all_told_and_leave_nothing_running(seed: int) -> None:
    bench = Bench(plugin={"policy": "he"}, page=PAGE, size=48 * PAGE, host=1.5, observe=True)
    scheduler = Scheduler(bench, seed)
    for _ in range(600):
        scheduler.move()
        assert not bench.runtime.guard.fault
        for workflow in bench.runtime.state.live.values():
            assert workflow.running == scheduler.begun(workflow.name)
        bench.check()
    while scheduler.running or scheduler.waiting:
        (scheduler.finish if scheduler.running else scheduler.abort_waiting)()
    scheduler.step()
    for n in range(5):
        bench.runtime.close(f"w{n}")
    assert not bench.runtime.state.live
    assert not bench.runtime._held
    assert len(rows(bench, "call")) == scheduler.ended == bench.runtime.counts["calls"]
    kinds = [int(r["event"]) for r in rows(bench, "workflow")]
    assert kinds.count(0) == kinds.count(2) > 10, "every workflow that started has retired"
    bench.close()


# ---- namespaces ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["extra_key", "cache_salt"])
def test_namespaces_share_no_node_and_no_fate(kind: str) -> None:
    """LoRA adapters and cache salts split SGLang's tree: equal tokens of two namespaces are different nodes, and stay apart for us."""
    bench = Bench(plugin={"policy": "lae"}, page=PAGE, size=96, host=1.5, observe=True)
    spaces = {name: {kind: name} for name in ("lora-1", "lora-2")}
    current: dict[str, str] = {}
    bench.key = lambda tokens: RadixKey(array("q", tokens), **current)  # type: ignore[method-assign]
    records: dict[str, Any] = {}
    for name, key in spaces.items():
        current = key
        bench.call(f"of-{name}", "a", A)
        (records[name],) = bench.records(A)
        bench.runtime.pages.name_path([records[name].node])
    bench.settle()
    one, two = records["lora-1"], records["lora-2"]
    assert one is not two
    assert one.page != two.page != 0, "a replay must not take them for the same content"
    assert [w.name for w in one.live] == ["of-lora-1"]
    bench.runtime.close("of-lora-2")
    assert (one.retired, two.retired) == (False, True)
    assert bench.evict(1) == len(A)
    current = spaces["lora-1"]
    assert bench.match(A).device_prefix_len == len(A), "the live namespace's KV stays"
    current = spaces["lora-2"]
    assert bench.match(A).device_prefix_len == 0
    assert bench.content_ok(A)
    bench.check()
    bench.close()


# ---- knobs -----------------------------------------------------------------------------------------------------------------------

CHANGES = [*({"policy": p} for p in POLICIES), {"gamma": 0.1}, {"gamma": 1.0}, {"k": 1}, {"k": 8}, {"host_order": "score"}]


def test_no_change_of_knobs_costs_a_cached_token() -> None:
    """Scores and orders are made anew where they stand: what was warm stays warm, in both tiers, and is hit afterwards."""
    bench = Bench(plugin={"policy": "he"}, page=PAGE, size=64 * PAGE, host=1.5)
    runtime, rng = bench.runtime, random.Random(81)
    for _ in range(150):
        bench.call(f"w{rng.randrange(6)}", rng.choice("abc"), sequence(rng, 3 * PAGE), final=rng.random() < 0.1)
        bench.settle()
    before = {node.id: runtime.tree.tier_of(node.pbkv) for node in bench.nodes()}
    assert {"both", "host"} <= set(before.values())
    learned, live = dict(runtime.predictor._counts), list(runtime.state.live)
    orders: set[tuple[int, ...]] = set()
    for change in CHANGES:
        runtime.knobs.apply(change, if_version=runtime.knobs.version, step=1, actor="test")
        runtime.knobs_changed(set(change))
        assert {node.id: runtime.tree.tier_of(node.pbkv) for node in bench.nodes()} == before
        assert (runtime.predictor._counts, list(runtime.state.live)) == (learned, live)
        bench.check()  # the queues are in the order of a full sort
        orders.add(tuple(sorted(runtime.device._alive, key=lambda n: (runtime.device._key(runtime.device._alive[n]), n))))
    assert len(orders) > 3, "and the order has changed"
    for node in bench.nodes():
        if runtime.tree.tier_of(node.pbkv) == "both":
            tokens: list[int] = []
            while node is not bench.core.root_node:
                tokens[:0] = node.key.raw_token_ids().tolist()
                node = node.parent
            assert bench.match(tokens).device_prefix_len == len(tokens)
            assert bench.content_ok(tokens)
    bench.close()
