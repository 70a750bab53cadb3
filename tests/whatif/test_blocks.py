"""Blocks, stack distances and the account of their difference from the tree, against plain simulations and what other programs found."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pbkv.engine.settings import EngineSettings
from pbkv.errors import UsageError
from pbkv.whatif import stack
from pbkv.whatif.account import account, behind_hits, flat_hits
from pbkv.whatif.blocks import BlockTrace, blocks_of, numbered
from pbkv.whatif.recording import RecordedCall, RecordedWorkflow, Recording
from pbkv.whatif.stack import lru_hits, runs_of
from tests.whatif.paths import CALLS, KVCACHE_SIMULATOR, LIBCACHESIM, SEED, SIZES, Path, leaf_lru, paths

#: Short requests over few ids, so that equal ids stand behind equal and unequal paths.
REQUESTS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=40)


def named(requests: Sequence[Sequence[int]]) -> list[Path]:
    """The same requests with ids that stand behind one path each."""
    known: dict[tuple[int, ...], int] = {}
    return [tuple(known.setdefault(tuple(path[: n + 1]), len(known)) for n in range(len(path))) for path in requests]


def singles(trace: BlockTrace) -> BlockTrace:
    """Every reference a call of its own."""
    return BlockTrace(trace.blocks, np.arange(len(trace.blocks) + 1), np.ones(len(trace.blocks), np.int64))


@given(REQUESTS)
def test_equal_numbers_are_equal_paths(requests: list[list[int]]) -> None:
    trace = blocks_of(requests)
    numbers: dict[int, int] = dict(zip([block for path in named(requests) for block in path], trace.blocks.tolist(), strict=True))
    assert [numbers[block] for path in named(requests) for block in path] == trace.blocks.tolist()
    assert trace.distinct == len(set(trace.blocks.tolist())) == len(numbers)


@given(REQUESTS, st.sampled_from([0, -7, 1 << 61]))
def test_ids_may_be_any_numbers(requests: list[list[int]], offset: int) -> None:
    shifted = [[page + offset for page in path] for path in requests]
    assert blocks_of(shifted).blocks.tolist() == blocks_of(requests).blocks.tolist()


def test_ids_far_apart_keep_their_order() -> None:
    assert numbered(np.array([1 << 60, 5, 1 << 60, 9]), np.array([0, 1, 2, 3, 4])).tolist() == [2, 0, 2, 1]


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="0 references to blocks: expected 1 to"):
        blocks_of([(), ()])


@settings(max_examples=300)
@given(REQUESTS, st.integers(0, 10))
def test_stack_distances_are_a_cache_of_each_size(requests: list[list[int]], measured_from: int) -> None:
    paths_ = named(requests)
    hits = lru_hits(blocks_of(paths_), measured_from)
    longest = max(map(len, paths_))
    for size in range(longest, len(hits)):
        assert hits[size] == leaf_lru(paths_, size, measured_from), size
    assert hits[0] == 0
    assert (np.diff(hits) >= 0).all()


@given(REQUESTS)
def test_of_a_request_longer_than_the_pool_what_fits_is_kept(requests: list[list[int]]) -> None:
    paths_ = named(requests)
    hits = lru_hits(blocks_of(paths_))
    for size in range(1, min(max(map(len, paths_)), len(hits))):
        assert hits[size] == leaf_lru(paths_, size), size


@given(REQUESTS)
def test_single_references_are_plain_lru(requests: list[list[int]]) -> None:
    trace = blocks_of(named(requests))
    hits = lru_hits(singles(trace))
    assert [int(flat_hits(trace, size).sum()) for size in range(1, len(hits))] == hits[1:].tolist()


def test_runs_are_few_and_in_order() -> None:
    trace = blocks_of(paths(SEED, CALLS))
    runs = runs_of(trace)
    assert len(runs.call) < len(trace.blocks) / 5
    assert (np.diff(runs.call) >= 0).all() and (runs.before < runs.call).all() and (runs.above >= 0).all()
    assert runs.length.sum() == len(trace.blocks) - trace.distinct


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(REQUESTS, st.integers(1, 5), st.sampled_from([0, 1_000_000]))
def test_neither_chunks_nor_ways_of_looking_back_change_anything(
    monkeypatch: pytest.MonkeyPatch, requests: list[list[int]], chunk: int, long: int,
) -> None:
    """Fewer runs at once than one call may have; paths looked up one by one, or sorted."""
    trace = blocks_of(named(requests))
    expected = lru_hits(trace).tolist()
    monkeypatch.setattr(stack, "_CHUNK", chunk)
    monkeypatch.setattr(stack, "_LONG", long)
    assert lru_hits(trace).tolist() == expected


def test_calls_with_more_runs_than_a_chunk_has() -> None:
    """A long path, shortened and read again from every depth, so that each of its blocks was last had by another call."""
    path = tuple(range(300))
    requests = [path, *(path[:n] for n in range(299, 0, -1)), (500, 501), path, path[:7], path]
    hits = lru_hits(blocks_of(requests))
    for size in (300, 301, 302):
        assert hits[size] == leaf_lru(requests, size), size


def test_outputs_take_room_and_are_not_counted() -> None:
    prompts, outputs = [(1,), (2,), (1, 9)], [(9,), (), ()]
    hits = lru_hits(blocks_of(prompts, outputs))
    # 1, then its output 9, then 2; both are read again: 1 from two blocks on, 9 from three.
    assert hits.tolist() == [0, 0, 1, 2]


def test_as_libcachesim_and_kvcache_simulator_found() -> None:
    made = paths(SEED, CALLS)
    trace = blocks_of(made)
    assert [int(flat_hits(trace, size).sum()) for size in SIZES] == list(LIBCACHESIM)
    hits = lru_hits(trace, CALLS // 2)
    assert [int(hits[size]) for size in SIZES] == list(KVCACHE_SIMULATOR)


# ---- the account -------------------------------------------------------------------------------------------------------------


def recording(requests: Sequence[Path], page: int = 4, rest: int = 1, output: int = 3) -> Recording:
    """Each request a workflow of one call, whose prompt ends `rest` tokens after its last full page."""
    made: list[RecordedWorkflow] = []
    for n, path in enumerate(requests):
        tokens = len(path) * page + rest
        more = tuple(range(1_000_000 + n * 8, 1_000_000 + n * 8 + (tokens + output - 1) // page - len(path)))
        call = RecordedCall("a", path, tokens, output, more, arrived=float(n), ended=n + 0.5)
        made.append(RecordedWorkflow(f"w{n}", (call,), float(n), attributed=False))
    return Recording("made", tuple(made), EngineSettings(page_size=page, device_tokens=100 * page, chunk_tokens=8192))


def test_the_account_begins_with_the_others_and_ends_with_the_tree() -> None:
    made = paths(SEED, CALLS)
    for size in SIZES[1:4]:
        steps = account(recording(made, output=6), size * 4)
        assert steps[0].hits == LIBCACHESIM[SIZES.index(size)]
        assert steps[2].hits == leaf_lru(made, size)
        assert all(step.refs == sum(map(len, made)) for step in steps)
        assert steps[4].hits < steps[3].hits, "outputs take room"
        assert steps[5].hits < steps[4].hits, "whole nodes free more than is needed"


def test_the_last_page_of_a_prompt_without_rest_is_not_read() -> None:
    twice = [(1, 2, 3), (1, 2, 3)]
    steps = account(recording(twice, rest=0, output=1), 400)
    assert [step.hits for step in steps] == [3, 3, 3, 2, 2, 2]


def test_a_hit_behind_a_miss_is_none() -> None:
    trace = blocks_of([(1, 2, 3), (4, 5)])
    found = behind_hits(trace, np.array([True, False, True, True, True]))
    assert found.tolist() == [True, False, False, True, True]


def test_the_account_wants_a_pool_for_every_call() -> None:
    made = recording([(1, 2, 3)], output=8)
    with pytest.raises(UsageError, match="device_tokens = 16: expected at least 20, the longest call"):
        account(made, 16)


@settings(max_examples=100, deadline=None)
@given(REQUESTS)
def test_nodes_of_one_page_are_blocks(requests: list[list[int]]) -> None:
    """Requests that grow by one page make a tree of single pages, which loses exactly what stack distances say."""
    growing = [path[: n + 1] for path in named(requests) for n in range(len(path))]
    made = recording(growing, output=1)
    for size in {max(2, *map(len, growing)), 8, 12}:
        steps = account(replace(made, engine=replace(made.engine, device_tokens=size * 4)), size * 4)
        assert steps[5].hits == steps[4].hits == leaf_lru(growing, size)
