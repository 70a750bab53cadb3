"""What agents read, learned from what they read: from the literal rule to the layout's truth."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv import reads as reads_module
from pbkv.reads import CELLS, LITERAL_PRIOR, MOST, NEVER, PAIR_PRIOR, READ, SKIPPED, WROTE, Reads, cell_of, literal
from pbkv.record import OUTPUT, PROMPT, SHARED, Access
from tests.core.fakes import workflow

A, B, C = 0, 1, 2


def decode(cell: int) -> tuple[int, int, int, bool]:
    """(kind, what the agent did, what the newest call did, wrote it)."""
    return cell // 24, cell // 6 % 4, cell // 2 % 3, bool(cell % 2)


def history(kind: int = PROMPT) -> Access:
    return Access(A, kind, 0)


@pytest.mark.parametrize("kind", [SHARED, PROMPT, OUTPUT])
def test_cells_tell_the_cases_apart(kind: int) -> None:
    w = workflow("w")
    w.last_call_of = {A: 0}
    fresh = history(kind)
    assert decode(cell_of(w, fresh, A, 0)) == (kind, WROTE, 0, True)
    assert decode(cell_of(w, fresh, B, 0)) == (kind, NEVER, 0, False)
    w.last_call_of[B] = 1  # b called and went around it
    assert decode(cell_of(w, fresh, A, 1)) == (kind, WROTE, 2, True)
    assert decode(cell_of(w, fresh, B, 1)) == (kind, SKIPPED, 2, False)
    assert decode(cell_of(w, fresh, C, 1)) == (kind, NEVER, 2, False)
    read = fresh.read_by(B, 1)
    assert decode(cell_of(w, read, B, 1)) == (kind, READ, 1, False)
    assert decode(cell_of(w, read, C, 1)) == (kind, NEVER, 1, False)
    w.last_call_of[A] = 2  # its writer came back and went around it
    assert decode(cell_of(w, read, A, 2)) == (kind, SKIPPED, 2, True)
    assert decode(cell_of(w, read.read_by(A, 2), A, 2)) == (kind, READ, 1, True)


def test_every_cell_is_within_the_table() -> None:
    w = workflow("w")
    for kind in (SHARED, PROMPT, OUTPUT):
        for last_a in (-1, 0, 1, 2):
            w.last_call_of = {A: last_a} if last_a >= 0 else {}
            for access in (history(kind), history(kind).read_by(B, 1), history(kind).read_by(A, 2)):
                for agent in (A, B):
                    for newest in (0, 1, 2):
                        assert 0 <= cell_of(w, access, agent, newest) < CELLS


def test_without_evidence_the_literal_rule_speaks() -> None:
    reads = Reads()
    for cell in range(CELLS):
        assert reads.probability(cell, A, B) == (1.0 if literal(cell) else 0.0)


def test_the_estimate_is_the_formula_of_its_docstring() -> None:
    reads, cell = Reads(), 7
    reads.learn(cell, A, B, 3, 1)
    reads.learn(cell, A, C, 0, 6)
    shared = (3 + LITERAL_PRIOR * literal(cell)) / (10 + LITERAL_PRIOR)
    assert reads.probability(cell, A, B) == pytest.approx((3 + PAIR_PRIOR * shared) / (4 + PAIR_PRIOR))
    assert reads.probability(cell, A, C) == pytest.approx(PAIR_PRIOR * shared / (6 + PAIR_PRIOR))
    assert reads.probability(cell, B, C) == pytest.approx(shared), "a pair never seen takes what all pairs say"


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, CELLS - 1), *[st.integers(0, 3)] * 2, *[st.integers(0, 50)] * 2), max_size=80))
def test_estimates_are_probabilities_and_equal_on_all_ranks(rows: list[tuple[int, int, int, int, int]]) -> None:
    one, two = Reads(), Reads()
    for row in rows:
        one.learn(*row)
        two.learn(*row)
    for cell, writer, reader, _, _ in rows:
        p = one.probability(cell, writer, reader)
        assert 0.0 <= p <= 1.0
        assert p == two.probability(cell, writer, reader)


def test_a_layout_that_changed_is_learned_anew() -> None:
    reads, cell = Reads(), 7
    for _ in range(10 * MOST):
        reads.learn(cell, A, B, 1, 0)
    assert reads.probability(cell, A, B) > 0.99
    for _ in range(2 * MOST):
        reads.learn(cell, A, B, 0, 1)
    assert reads.probability(cell, A, B) < 0.3


def test_pairs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_module, "MAX_PAIRS", 10)
    reads = Reads()
    for n in range(100):
        reads.learn(7, n, n + 1, 1, 0)
    assert len(reads._pairs) == 10
    assert reads.probability(7, 99, 100) > 0.9, "beyond the table the shared estimate still learns"


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, CELLS - 1), *[st.integers(0, 3)] * 2, *[st.integers(0, 9)] * 2), max_size=80),
    st.dictionaries(st.integers(0, 3), st.integers(0, 4)), st.dictionaries(st.integers(0, 3), st.integers(0, 4)),
    st.sampled_from([SHARED, PROMPT, OUTPUT]), st.integers(0, 4), st.integers(0, 4), st.integers(0, 5),
)
def test_all_agents_at_once_is_each_of_them(
    learned: list[tuple[int, int, int, int, int]], called: dict[int, int], read: dict[int, int], kind: int, first: int, last: int,
    newest: int,
) -> None:
    reads, w, access = Reads(), workflow("w"), Access(A, kind, first)
    for row in learned:
        reads.learn(*row)
    w.last_call_of, access.agents, access.last = called, {A: first, **read}, last
    expected = [reads.probability(cell_of(w, access, agent, newest), A, agent) for agent in range(4)]
    assert reads.of(w, access, range(4), newest) == expected
