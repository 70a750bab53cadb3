"""What a network sees: runs of a path, vectors of names, the call graph."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.predictor.callgraph import COPIES, estimate, new_agent
from pbkv.predictor.features import LENGTHS, NAME_DIM, NODE_DIM, RUNS, STRUCTURE_DIM, TURNS, name_vector, normalised, view

PATHS = st.lists(st.integers(0, 4), max_size=256)


@given(PATHS)
def test_a_view_is_the_end_of_the_path_in_runs(path: list[int]) -> None:
    seen = view(path)
    assert len(seen.agents) == len(seen.lengths) == len(seen.turns) <= RUNS
    assert all(a != b for a, b in zip(seen.agents, seen.agents[1:], strict=False))
    unrolled = [a for a, n in zip(reversed(seen.agents), reversed(seen.lengths), strict=True) for _ in range(n)]
    if all(n < LENGTHS - 1 for n in seen.lengths):
        assert path[len(path) - len(unrolled) :] == unrolled
    if path:
        assert seen.agents[0] == path[-1]
        assert max(seen.lengths) < LENGTHS and max(seen.turns) < TURNS
        runs_of_newest = sum(a == path[-1] and (i == 0 or path[i - 1] != a) for i, a in enumerate(path))
        assert seen.turns[0] == min(runs_of_newest - 1, TURNS - 1)


def test_a_view_by_hand() -> None:
    seen = view([1, 1, 2, 1, 3, 3, 3])
    assert (seen.agents, seen.lengths, seen.turns) == ([3, 1, 2, 1], [3, 1, 1, 2], [0, 1, 0, 0])
    assert view([]).agents == []
    assert view([5] * 300).lengths == [LENGTHS - 1]


@given(st.text(max_size=400))
def test_any_name_has_a_vector_of_unit_length(name: str) -> None:
    vector = name_vector(name)
    assert vector.shape == (NAME_DIM,)
    assert np.isfinite(vector).all()
    assert float(np.linalg.norm(vector)) == pytest.approx(1.0, abs=1e-5) or not vector.any()
    assert (vector == name_vector(name)).all()


def test_a_name_is_hashed_the_same_on_every_machine() -> None:
    assert np.flatnonzero(name_vector("ab")).tolist() == [13, 17, 26]  # CRC-32 of "ab" is 0x9e83486d: place 13


def test_names_that_look_alike_are_near() -> None:
    near = float(name_vector("Geometry_Expert") @ name_vector("Geography_Expert"))
    far = float(name_vector("Geometry_Expert") @ name_vector("WebSurfer"))
    assert near > far + 0.3


def test_the_call_graph_by_hand() -> None:
    graph = estimate([[0, 1, 1, 2], [0, 2]], ["a", "b", "c"])
    assert graph.counts.tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 2]]
    assert graph.starts.tolist() == [2, 0, 0]
    structure = graph.structure()
    assert structure.shape == (3, STRUCTURE_DIM)
    assert structure[0, 1] == 1.0  # every run starts with a
    assert structure[2, 2] == 1.0  # and ends with c
    assert structure[1, 3] == 0.5  # half of b's calls repeat it
    assert graph.nodes().shape == (3, NODE_DIM)


def test_edges_stand_in_the_list_as_often_as_they_are_likely() -> None:
    graph = estimate([[0, 1]] * 6 + [[0, 2]] * 2, ["a", "b", "c"])
    edges = list(zip(*graph.edges().tolist(), strict=True))
    assert edges.count((0, 1)) == COPIES * 6 // 8 and edges.count((0, 2)) == COPIES * 2 // 8
    rare = estimate([[0, 1]] * 1000 + [[0, 2]], ["a", "b", "c"])
    assert list(zip(*rare.edges().tolist(), strict=True)).count((0, 2)) == 1


def test_an_agent_that_the_graph_does_not_know_has_its_name_alone() -> None:
    vector = new_agent("Tester")
    assert (vector[:NAME_DIM] == name_vector("Tester")).all() and not vector[NAME_DIM:].any()


def test_signals_have_unit_length_and_nothing_stays_nothing() -> None:
    signals = normalised(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32))
    assert signals.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, 0.0]]
