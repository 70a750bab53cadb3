"""Runs and rows: nothing leaks from the future or from one set of runs into another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.knobs import K_MAX
from pbkv.predictor.dataset import Trace, digest, folds, from_workload, load_traces, roster, rows, split, text_dim
from pbkv.predictor.features import RUNS, normalised
from pbkv.workloads.hover_like import HoverLike
from tests.predictor.conftest import runs


def test_rows_by_hand() -> None:
    texts = normalised(np.eye(3, dtype=np.float32))
    table = rows([Trace("w", ("a", "b", "b"), texts)], ["a", "b"])
    assert len(table) == 6
    assert table.reply.tolist() == [0, 1] * 3
    assert table.calls.tolist() == [1, 1, 2, 2, 3, 3]
    assert table.text.tolist() == [-1, 0, 0, 1, 1, 2]  # at prefill the newest output is that of the call before
    assert table.targets[0].tolist() == [1, 1, 2, *[-1] * (K_MAX - 3)]
    assert table.targets[5].tolist() == [2, *[-1] * (K_MAX - 1)]
    assert table.agents[4].tolist() == [1, 0, *[-1] * (RUNS - 2)]
    assert table.lengths[4, :2].tolist() == [2, 1]


def test_without_texts_no_row_names_one() -> None:
    table = rows(runs(5), roster(runs(5)))
    assert (table.text == -1).all() and table.texts.size == 0


def test_text_rows_belong_to_their_own_run() -> None:
    half = np.full((2, 4), 0.5, np.float32)
    traces = [Trace("v", ("a",)), Trace("w", ("a", "a"), half), Trace("x", ("a",), half[:1])]
    table = rows(traces, ["a"], at_prefill=False)
    assert table.text.tolist() == [-1, 0, 1, 2]


def test_one_moment_can_be_left_out() -> None:
    assert set(rows(runs(3), roster(runs(3)), at_reply=False).reply.tolist()) == {0}


def test_agents_that_are_not_named_are_an_error() -> None:
    with pytest.raises(KeyError):
        rows([Trace("w", ("x",))], ["a"])


@given(st.integers(1, 40), st.integers(0, 9), st.sampled_from([(0.75, 0.125, 0.125), (0.5, 0.5)]))
def test_a_split_divides_the_runs(count: int, seed: int, parts: tuple[float, ...]) -> None:
    traces = runs(count)
    sets = split(traces, parts, seed)
    assert sorted(t.name for part in sets for t in part) == sorted(t.name for t in traces)
    assert [[t.name for t in part] for part in split(traces, parts, seed)] == [[t.name for t in part] for part in sets]


@given(st.integers(2, 40), st.integers(2, 6))
def test_every_run_is_held_out_once(count: int, number: int) -> None:
    traces = runs(count)
    made = folds(traces, number, 3)
    assert sorted(t.name for _, fold in made for t in fold) == sorted(t.name for t in traces)
    for others, fold in made:
        assert not {t.name for t in others} & {t.name for t in fold}
        assert len(others) + len(fold) == count


def test_a_digest_tells_data_apart() -> None:
    traces = runs(4, texts=4)
    assert digest(traces) == digest(runs(4, texts=4))
    changed = [*traces[:3], Trace(traces[3].name, traces[3].agents, traces[3].texts * 0.5)]
    assert len({digest(traces), digest(traces[:3]), digest(changed), digest(runs(4))}) == 4


def test_text_lengths_agree_or_are_refused() -> None:
    assert text_dim(runs(2, texts=8)) == 8
    assert text_dim(runs(2)) == 0
    with pytest.raises(UsageError, match=r"lengths \[4, 8\]"):
        text_dim([*runs(1, texts=8), *runs(1, texts=4)])


def test_a_generator_is_read_as_far_as_asked() -> None:
    traces = from_workload(HoverLike(), 7, seed=3)
    assert len(traces) == 7
    assert traces[0].agents[0] == "Decomposer" and traces[0].texts is None
    assert traces == from_workload(HoverLike(), 7, seed=3)


def test_a_trace_that_names_no_agent_teaches_nothing(tmp_path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text('{"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [1]}\n')
    with pytest.raises(UsageError, match="does not name agents"):
        load_traces([file])


def test_conversations_are_runs(tmp_path) -> None:
    file = tmp_path / "talk.json"
    file.write_text('{"history": [{"name": "A", "content": "x"}, {"name": "B", "content": "y"}]}')
    assert [t.agents for t in load_traces([file])] == [("A", "B")]
