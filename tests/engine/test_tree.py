"""The tree alone, move by move: splits, leaves, locks, tiers, and the order of victims."""

from typing import Any

import pytest

from pbkv.engine.node import DEVICE_LEAF, HOST_LEAF, NO_LEAF, Node
from pbkv.engine.pools import Pool
from pbkv.engine.tiers import TwoTierTree
from tests.engine.invariants import check_tree
from tests.engine.parts import make_tree

Pages = tuple[int, ...]


def put(tree: TwoTierTree, *pages: int) -> Node:
    """Match, allocate and insert, as a call does that ends at once."""
    found = tree.match(pages, len(pages))
    tree.lock(found.device)
    need = len(pages) - found.device_pages
    assert tree.make_room(need)
    tree.device.take(need)
    end = tree.insert(tree.root, pages, 0, found.device_pages, 0)
    tree.unlock(found.device)
    check_tree(tree)
    return end


def settle(tree: TwoTierTree) -> None:
    tree.copies.settle()  # type: ignore[attr-defined]
    check_tree(tree)


def shape(tree: TwoTierTree) -> set[tuple[Pages, str]]:
    """Path of every node with where it is: d, h, or dh."""

    def path(node: Node) -> Pages:
        return () if node is tree.root else path(node.parent) + node.key

    return {(path(node), "d" * node.on_device + "h" * node.on_host) for node in tree.walk()}


# ---- structure -------------------------------------------------------------------------------------------------------------


def test_a_fork_splits_the_node_it_leaves() -> None:
    tree = make_tree(20)
    put(tree, 1, 2, 3, 4)
    put(tree, 1, 2, 5)
    assert shape(tree) == {((1, 2), "d"), ((1, 2, 3, 4), "d"), ((1, 2, 5), "d")}
    assert (tree.device.free, tree.device.cached) == (15, 5)


def test_a_match_that_ends_inside_a_node_splits_it_and_the_suffix_keeps_its_record() -> None:
    tree = make_tree(20)
    whole = put(tree, 1, 2, 3, 4)
    record = whole.record
    found = tree.match((1, 2, 9), 3)
    check_tree(tree)
    assert found.device_pages == 2 and found.device is found.best and found.host_pages == 0
    assert whole.record is record and record.tokens == 2 and whole.key == (3, 4)
    assert found.best.record.tokens == 2


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_a_match_stops_at_its_limit(limit: int) -> None:
    tree = make_tree(20)
    put(tree, 1, 2, 3)
    assert tree.match((1, 2, 3), limit).device_pages == limit
    check_tree(tree)


def test_what_is_there_already_is_given_back() -> None:
    tree = make_tree(20)
    put(tree, 1, 2, 3)
    tree.device.take(5)  # another call computed all of it at the same time, and two pages more
    end = tree.insert(tree.root, (1, 2, 3, 4, 5), 0, 0, 0)
    assert tree.device.held == 0 and tree.device.free == 15
    assert end.key == (4, 5)
    check_tree(tree)


def test_an_insertion_below_a_locked_node_moves_the_lock_to_its_end() -> None:
    tree = make_tree(20)
    start = put(tree, 1, 2)
    tree.lock(start)
    tree.device.take(2)
    end = tree.insert(start, (3, 4), 0, 0, 0, first=True, lock=True)
    assert (start.lock_ref, end.lock_ref) == (1, 1)
    assert tree.device.locked == 4 and not tree.evict(4)
    tree.unlock(end)
    check_tree(tree)
    assert tree.evict(4) == 4


def test_a_lock_covers_both_parts_of_a_node_that_is_split_under_it() -> None:
    tree = make_tree(20)
    end = put(tree, 1, 2, 3, 4)
    tree.lock(end)
    put(tree, 1, 2, 7)
    assert tree.evict(20) == 1, "only the fork"
    tree.unlock(end)
    check_tree(tree)
    assert tree.evict(20) == 4


# ---- device tier -----------------------------------------------------------------------------------------------------------


def test_leaves_go_first_and_the_least_recently_used_of_them() -> None:
    tree = make_tree(20)
    put(tree, 1, 2)
    put(tree, 1, 2, 3)
    put(tree, 5, 6)
    tree.match((1, 2, 3), 3)
    assert tree.evict(1) == 2
    assert {path for path, _ in shape(tree)} == {(1, 2), (1, 2, 3)}
    assert tree.evict(2) == 3, "whole nodes, and the parent when its last child has gone"
    assert not tree.nodes


def test_room_is_made_only_as_far_as_needed() -> None:
    tree = make_tree(6)
    put(tree, 1, 2)
    put(tree, 3, 4)
    put(tree, 5, 6)
    assert tree.make_room(1) and tree.device.free == 2
    assert tree.make_room(2) and tree.device.free == 2
    assert not tree.make_room(7)


# ---- host tier -------------------------------------------------------------------------------------------------------------


def test_write_through_copies_when_inserted_and_locks_until_the_copy_is_done() -> None:
    tree = make_tree(10, 10)
    end = put(tree, 1, 2, 3)
    assert shape(tree) == {((1, 2, 3), "dh")}
    assert end.leaf == NO_LEAF and tree.device.locked == 3
    settle(tree)
    assert end.leaf == DEVICE_LEAF
    assert tree.evict(1) == 3
    assert end.leaf == HOST_LEAF and shape(tree) == {((1, 2, 3), "h")}


def test_selective_write_through_waits_for_the_second_hit_and_copies_ancestors_first() -> None:
    tree = make_tree(10, 10, write_policy="write_through_selective")
    put(tree, 1, 2)
    put(tree, 1, 2, 3)
    settle(tree)
    assert shape(tree) == {((1, 2), "dh"), ((1, 2, 3), "d")}
    put(tree, 1, 2, 3)
    settle(tree)
    assert shape(tree) == {((1, 2), "dh"), ((1, 2, 3), "dh")}


def test_a_node_without_copy_is_dropped_when_the_host_is_full_of_locked_ones() -> None:
    tree = make_tree(10, 3)
    first = put(tree, 1, 2, 3)
    put(tree, 5, 6)
    assert shape(tree) == {((1, 2, 3), "dh"), ((5, 6), "d")}
    settle(tree)
    assert tree.evict(5) == 5
    assert shape(tree) == {((1, 2, 3), "h")} and first.leaf == HOST_LEAF


def test_host_leaves_make_room_for_new_copies() -> None:
    tree = make_tree(6, 4)
    put(tree, 1, 2, 3)
    settle(tree)
    tree.evict(3)
    put(tree, 5, 6)
    settle(tree)
    assert shape(tree) == {((5, 6), "dh")}
    assert (tree.host.free, tree.host.cached) == (2, 2)


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_a_load_brings_the_evicted_part_of_a_path_back(policy: Any) -> None:
    tree = make_tree(160, 160, 10, policy)
    put(tree, 1, 2)
    end = put(tree, 1, 2, 3, 4)
    settle(tree)
    tree.evict(4)
    assert {tier for _, tier in shape(tree)} == {"h"}
    found = tree.match((1, 2, 3, 4), 4)
    assert (found.device_pages, found.host_pages) == (0, 4) and found.best is end
    assert tree.load_back(end) == 4
    assert tree.device.locked == 4, "resident at once, locked until the copy is through"
    check_tree(tree)
    settle(tree)
    assert tree.device.cached == 4 and {tier for _, tier in shape(tree)} == {"dh"}


def test_a_load_of_fewer_than_ten_tokens_is_refused() -> None:
    tree = make_tree(30, 30)
    end = put(tree, *range(1, 10))
    settle(tree)
    tree.evict(9)
    assert tree.load_back(end) == 0
    longer = put(tree, *range(20, 30))
    settle(tree)
    tree.evict(20)
    assert tree.load_back(longer) == 10


def test_a_load_that_finds_no_room_changes_nothing() -> None:
    tree = make_tree(120, 240, 10)
    end = put(tree, 1, 2, 3)
    settle(tree)
    tree.evict(3)
    other = put(tree, *range(10, 21))
    settle(tree)
    tree.lock(other)
    before = shape(tree)
    assert tree.load_back(end) == 0
    assert shape(tree) == before and end.leaf == HOST_LEAF
    check_tree(tree)


def test_what_is_being_loaded_may_be_split_meanwhile() -> None:
    tree = make_tree(160, 160, 10)
    end = put(tree, 1, 2, 3, 4)
    settle(tree)
    tree.evict(4)
    tree.load_back(end)
    tree.match((1, 2, 9), 3)
    check_tree(tree)
    settle(tree)
    assert all(node.host_lock == 0 and node.lock_ref == 0 for node in tree.walk())
    tree.evict(4)
    assert tree.evict_host(4) == 4


def test_write_back_copies_at_eviction_and_not_before() -> None:
    tree = make_tree(10, 10, write_policy="write_back")
    put(tree, 1, 2, 3)
    assert shape(tree) == {((1, 2, 3), "d")}
    assert tree.evict(1) == 3
    assert shape(tree) == {((1, 2, 3), "h")} and tree.copies.written_back == 3  # type: ignore[attr-defined]


def test_write_back_without_room_on_the_host_drops_what_is_below_too() -> None:
    tree = make_tree(10, 3, write_policy="write_back")
    put(tree, 1, 2, 3, 4)
    put(tree, 1, 2, 3, 4, 5, 6, 7)
    assert tree.evict(3) == 3
    assert shape(tree) == {((1, 2, 3, 4), "d"), ((1, 2, 3, 4, 5, 6, 7), "h")}
    assert tree.evict(4) == 4
    assert not tree.nodes and tree.host.free == 3


def test_write_back_gives_up_second_copies_before_only_ones() -> None:
    tree = make_tree(60, 40, 10, "write_back")
    both = put(tree, 1, 2)
    tree.evict(2)
    put(tree, 5, 6)
    tree.evict(2)
    tree.load_back(both)
    settle(tree)
    assert shape(tree) == {((1, 2), "dh"), ((5, 6), "h")}
    put(tree, 8, 9)
    tree.match((1, 2), 2)
    tree.evict(2)
    check_tree(tree)
    assert shape(tree) == {((1, 2), "d"), ((5, 6), "h"), ((8, 9), "h")}


def test_both_parts_of_a_split_second_copy_are_given_up() -> None:
    tree = make_tree(80, 60, 10, "write_back")
    both = put(tree, 1, 2, 3, 4)
    tree.evict(4)
    put(tree, 5, 6)
    tree.evict(2)
    tree.load_back(both)
    settle(tree)
    tree.match((1, 2, 0), 3)
    put(tree, 11, 12, 13, 14)
    tree.match((1, 2, 3, 4), 4)
    tree.evict(4)
    check_tree(tree)
    assert shape(tree) == {((1, 2), "d"), ((1, 2, 3, 4), "d"), ((5, 6), "h"), ((11, 12, 13, 14), "h")}


# ---- accounts --------------------------------------------------------------------------------------------------------------


def test_a_pool_rounds_down_to_pages_and_balances() -> None:
    pool = Pool(100, 16)
    assert (pool.size, pool.free, pool.used) == (6, 6, 0)
    pool.take(4)
    pool.give_back(1)
    assert (pool.free, pool.held, pool.used) == (3, 3, 3) and pool.balanced()
    pool.free += 1
    assert not pool.balanced()


@pytest.mark.parametrize("wrong", [lambda p: p.take(7), lambda p: p.take(-1), lambda p: p.give_back(1)])
def test_a_pool_refuses_what_it_does_not_have(wrong: Any) -> None:
    with pytest.raises(AssertionError):
        wrong(Pool(96, 16))
