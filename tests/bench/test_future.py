"""What the clairvoyant knows, against looking it up in the prompts."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.bench.future import FutureReads, NodePlaces, Places, Scripts
from pbkv.engine.node import Node
from pbkv.record import NodeRecord
from pbkv.workflow import Workflow

PAGES = st.lists(st.integers(1, 3), min_size=1, max_size=6).map(tuple)


def root() -> Node:
    return Node(0, (), 0.0)


def below(parent: Node, key: tuple[int, ...], number: int) -> Node:
    """A node of its own under `parent`."""
    node = Node(number, key, 0.0)
    node.parent = parent
    node.record = NodeRecord(node, number, len(key))
    return node


def workflow(name: str, calls: int, last_call: float = 0.0) -> Workflow:
    made = Workflow(name, 1, last_call)
    made.calls = calls
    return made


@given(st.lists(PAGES, min_size=1, max_size=6), PAGES, st.integers(1, 5))
def test_a_nodes_start_is_the_place_of_its_path(prompts: list[tuple[int, ...]], path: tuple[int, ...], cut: int) -> None:
    """Two nodes on `path`, cut somewhere: the second starts at a place exactly if a prompt goes on that way."""
    places = Places()
    for prompt in prompts:
        places.add(prompt)
    nodes = NodePlaces(places)
    top = below(root(), path[:cut], 1)
    assert (nodes.start(top) >= 0) == any(p[:1] == path[:1] for p in prompts)
    if cut < len(path):
        assert (nodes.start(below(top, path[cut:], 2)) >= 0) == any(p[: cut + 1] == path[: cut + 1] for p in prompts)


def test_equal_pages_behind_different_beginnings_are_different_places() -> None:
    places = Places()
    assert places.add((1, 5)) != places.add((2, 5))
    assert places.add((1, 5)) == places.add((1, 5))
    assert places.add((1, 5, 7))[:2] == places.add((1, 5))


def test_a_split_node_keeps_its_end() -> None:
    places = Places()
    path = places.add((1, 2, 3, 4, 5))
    nodes = NodePlaces(places)
    start = root()
    node, child = below(start, (1, 2, 3), 1), None
    child = below(node, (4, 5), 2)
    assert nodes.start(child) == path[3]
    prefix = below(start, (1,), 3)  # as a split makes it: the suffix keeps its id
    node.key, node.parent = (2, 3), prefix
    assert (nodes.start(prefix), nodes.start(node), nodes.start(child)) == (path[0], path[1], path[3])


def reads(prompts: list[tuple[int, ...]], delays: list[float]) -> tuple[FutureReads, NodeRecord]:
    """The future of workflow "w", and the record of a node that is page 1 at the beginning."""
    return FutureReads(Scripts([("w", (prompts, delays))])), below(root(), (1,), 1).record


def test_the_next_use_is_the_next_call_with_the_page() -> None:
    future, record = reads([(1,), (2,), (1, 2), (3,)], [0.0, 5.0, 7.0, 1.0])
    future.call_s = 2.0
    future.ended("w", 0.0, 10.0)
    took = future.call_s
    assert future.next_use(workflow("w", 1), record) == pytest.approx(10.0 + 5.0 + took + 7.0)
    assert future.next_use(workflow("w", 2), record) == pytest.approx(10.0 + 5.0 + took + 7.0), "the call in between runs"
    assert future.next_use(workflow("w", 3), record) is None
    assert future.next_use(workflow("v", 0), record) is None, "a workflow nobody knows"


def test_before_its_first_reply_a_workflow_counts_from_its_last_call() -> None:
    future, record = reads([(1,), (1,)], [0.0, 3.0])
    assert future.next_use(workflow("w", 1, last_call=20.0), record) == pytest.approx(20.0 + 3.0 + future.call_s)


def test_the_mean_call_follows_what_is_seen() -> None:
    future, _ = reads([(1,)], [0.0])
    for _ in range(1000):
        future.ended("w", 0.0, 9.0)
    assert future.call_s == pytest.approx(9.0, rel=1e-3)


@given(st.lists(PAGES, min_size=1, max_size=6), PAGES, st.data())
def test_next_use_is_what_a_search_finds(prompts: list[tuple[int, ...]], path: tuple[int, ...], data: st.DataObject) -> None:
    calls = data.draw(st.integers(0, len(prompts)))
    delays = [1.0] * len(prompts)
    future = FutureReads(Scripts([("w", (prompts, delays))]))
    node = below(below(root(), path[:1], 1), path[1:], 2) if len(path) > 1 else below(root(), path, 1)
    place = path[:2] if len(path) > 1 else path[:1]
    expected = next((n for n in range(calls, len(prompts)) if prompts[n][: len(place)] == place), None)
    found = future.next_use(workflow("w", calls), cast(NodeRecord, node.record))
    assert found == (None if expected is None else pytest.approx(expected + 1 + future.call_s * expected))
