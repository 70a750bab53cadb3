"""One record per node for as long as the node lives: through splits, demotions, removals and flushes."""

import random

import pytest

from pbkv.events.wire import decode
from pbkv.sglang.tree import LeafSet
from tests.sglang_cache.harness import FULL, Bench
from tests.sglang_cache.moves import sequence
from tests.sglang_cache.test_order import AGENTS, live_through

A = list(range(100, 148))
B = A[:24] + list(range(500, 524))


@pytest.mark.parametrize(("page", "host", "policy"), [(4, None, "write_through"), (4, 1.5, "write_through"), (4, 1.5, "write_back")])
def test_bookkeeping_holds_through_random_lives(page: int, host: float | None, policy: str) -> None:
    bench = Bench(plugin={}, page=page, size=128, host=host, write_policy=policy, observe=True)
    live_through(bench, 21, 500)  # checks after every step
    bench.runtime.telemetry.end_step(1)
    assert len(bench.sink.payloads) >= 1
    for payload in bench.sink.payloads:
        decode(payload)
    bench.close()


def test_a_split_copies_the_record() -> None:
    bench = Bench(plugin={}, page=1, size=256, host=None)
    bench.call("w", "a", A)
    (whole,) = bench.records(A)
    whole.hits, before = 3, (whole.score, whole.value)
    bench.put(B)
    prefix, suffix = bench.records(A)
    assert suffix is whole
    assert (prefix.tokens, suffix.tokens) == (24, 24)
    assert (prefix.score, prefix.value, prefix.hits) == (*before, 3)
    assert {w.name: a.agents for w, a in prefix.live.items()} == {w.name: a.agents for w, a in suffix.live.items()}
    workflow = bench.runtime.state.live["w"]
    assert set(workflow.records) == {prefix, suffix}
    bench.runtime.state.close("w")
    assert prefix.retired
    assert suffix.retired
    bench.check()


def test_repeated_splits_keep_sizes() -> None:
    bench = Bench(plugin={}, page=4, size=256, host=None)
    bench.call("w", "a", A)
    for cut in (44, 8, 28, 4, 40, 16):
        bench.call("w", "b", [*A[:cut], *range(cut * 1000, cut * 1000 + 8)])
        bench.check()
    assert [r.tokens for r in bench.records(A)] == [4, 4, 8, 12, 12, 4, 4]


def test_an_untouched_node_gets_its_record_when_it_becomes_a_leaf() -> None:
    bench = Bench(plugin={}, page=1, size=256, host=None)
    end = bench.node(bench.put(A) or 0)
    assert end.pbkv.tokens == len(A)
    assert not end.pbkv.touched
    assert not end.pbkv.retired


def test_a_removed_node_takes_its_record_along() -> None:
    bench = Bench(plugin={}, page=1, size=256, host=None)
    bench.call("w", "a", A)
    (record,) = bench.records(A)
    bench.evict(len(A))
    assert not record.live
    assert not bench.runtime.state.live["w"].records
    for queue in (bench.runtime.device, bench.runtime.host, bench.runtime.prefetch.queue):
        assert record not in queue
    bench.check()


def test_a_demoted_node_keeps_its_record_and_may_be_prefetched() -> None:
    bench = Bench(plugin={}, page=1, size=256, host=2.0)
    bench.call("w", "a", A)
    bench.settle()
    (record,) = bench.records(A)
    bench.evict(len(A))
    assert record.live
    assert record in bench.runtime.host
    assert record in bench.runtime.prefetch.queue
    assert record not in bench.runtime.device
    assert record.evicted_step == bench.runtime.step
    bench.check()
    bench.close()


def test_a_retired_node_is_not_worth_prefetching() -> None:
    bench = Bench(plugin={}, page=1, size=256, host=2.0)
    bench.call("w", "a", A, final=True)
    bench.settle()
    bench.evict(len(A))
    assert len(bench.runtime.prefetch.queue) == 0
    bench.close()


def test_a_split_on_the_host_makes_both_parts_candidates_of_prefetch() -> None:
    bench = Bench(plugin={}, page=1, size=256, host=2.0)
    bench.call("w", "a", A)
    bench.settle()
    bench.evict(len(A))
    bench.match(B)
    prefix, suffix = bench.records(A)
    assert prefix in bench.runtime.prefetch.queue
    assert suffix in bench.runtime.prefetch.queue
    assert (prefix.tokens, suffix.tokens) == (24, 24)
    bench.check()
    bench.close()


@pytest.mark.parametrize("host", [None, 1.5])
def test_a_flush_leaves_nothing_behind_and_the_cache_goes_on(host: float | None) -> None:
    bench = Bench(plugin={}, page=4, size=128, host=host, observe=True)
    runtime = bench.runtime
    for round_ in range(3):
        live_through(bench, 30 + round_, 80)
        bench.call("stays", "a", A)
        bench.settle()
        kept = runtime.state.live["stays"]
        bench.flush()
        assert not bench.nodes()
        assert bench.allocator.available_size() == bench.size
        for queue in (runtime.device, runtime.host, runtime.prefetch.queue):
            assert len(queue) == 0
            assert not queue._heap
        assert not any(w.records for w in runtime.state.live.values()), "a live workflow still holds records of the flushed tree"
        assert not runtime.prefetch._flying
        assert not runtime.prefetch._resident
        assert isinstance(bench.core.evictable_device_leaves, LeafSet)
        bench.check()
        bench.call("stays", "a", A)
        assert runtime.state.live["stays"] is kept
        assert bench.content_ok(A)
        runtime.telemetry.end_step(round_)
        runtime.state.close("stays")
    bench.close()


def test_a_flush_does_not_count_flushed_tokens_as_retired() -> None:
    bench = Bench(plugin={}, page=4, size=128, host=None, observe=True)
    bench.call("w", "a", A)
    bench.flush()
    bench.runtime.state.close("w")
    bench.runtime.telemetry.end_step(1)
    rows = [row for p in bench.sink.payloads for row in decode(p).tables.get("workflow", ())]
    assert [int(r["retired_device_tokens"]) for r in rows] == [0, 0, 0]


def test_page_ids_do_not_depend_on_how_the_tree_is_cut() -> None:
    bench = Bench(plugin={}, page=4, size=512, host=None, observe=True)
    pages = bench.runtime.pages
    bench.put(A)
    whole = pages.name_path([r.node for r in bench.records(A)])
    assert whole[1] == len(A) // 4
    for cut in (8, 28, 40):
        bench.put([*A[:cut], *range(cut * 1000, cut * 1000 + 8)])
    parts = bench.records(A)
    assert len(parts) == 4
    assert pages.name_path([r.node for r in parts]) == whole
    for r in parts:
        r.page = 0  # as if never named: the chain gives the same ids
    assert pages.name_path([r.node for r in parts]) == whole
    shared, other = pages.name_path([r.node for r in bench.records(B)]), pages.name_path([parts[0].node])
    assert shared[0] != whole[0]
    assert other[1] == 2
    bench.runtime.telemetry.end_step(1)
    rows = [row for p in bench.sink.payloads for row in decode(p).tables["page"]]
    assert len({int(r["page"]) for r in rows}) == len(rows), "each page is written once"
    by_id = {int(r["page"]): r for r in rows}
    for row in rows:
        parent = int(row["parent"])
        assert int(row["depth"]) == (int(by_id[parent]["depth"]) + 1 if parent else 1)


def test_records_follow_many_random_sequences() -> None:
    """Every node of the tree carries what its workflow did, however the tree was cut meanwhile."""
    bench, rng = Bench(plugin={}, page=1, size=4000, host=None), random.Random(40)
    did: dict[tuple[int, ...], dict[str, set[int]]] = {}
    for _ in range(200):
        name, agent, tokens = f"w{rng.randrange(6)}", rng.choice(AGENTS), sequence(rng, 9)
        bench.call(name, agent, tokens)
        number = bench.runtime.state.agents[agent]
        for end in range(1, len(tokens) + 1):
            did.setdefault(tuple(tokens[:end]), {}).setdefault(name, set()).add(number)
    for node in bench.nodes():
        tokens: list[int] = []
        above = node
        while above is not bench.core.root_node:
            tokens[:0] = above.key.raw_token_ids().tolist()
            above = above.parent
        assert {w.name: set(a.agents) for w, a in node.pbkv.live.items()} == did[tuple(tokens)]


def test_who_was_chosen_but_not_evicted_is_a_candidate_again() -> None:
    bench = Bench(plugin={}, page=1, size=256, host=None)
    for tokens in (A, [7] * 30, [8] * 30):
        bench.call("w", "a", tokens)
    core, chosen = bench.core, []
    for _ in range(2):
        core.evict_device_start(FULL, 10_000)
        chosen.append([core.evict_device_next_node(FULL, {FULL: 0}).node_id for _ in range(4)])
        core.evict_device_end(FULL)
        bench.check()
    assert chosen[0] == chosen[1]
    assert chosen[0][3] is None
    assert len(set(chosen[0][:3])) == 3


def test_a_full_host_under_write_back_drops_and_the_books_stay_right() -> None:
    bench = Bench(plugin={}, page=1, size=256, host=1.01, write_policy="write_back")
    for n in range(40):
        bench.call(f"w{n}", "a", list(range(n * 1000, n * 1000 + 60)))
        bench.check()
    assert bench.host_free() < 60
    bench.close()
