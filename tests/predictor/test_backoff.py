"""Markov of order n: counted by hand, proper at every step, kept and found again, and closed to damaged files."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.knobs import K_MAX
from pbkv.predictor import backoff, store
from pbkv.predictor.backoff import fit
from pbkv.predictor.base import END, Moment, Prediction
from pbkv.predictor.dataset import Trace, from_workload
from pbkv.predictor.evaluate import evaluate
from pbkv.predictor.load import load_predictor
from pbkv.predictor.names import Roster
from pbkv.workloads.bayes import Bayes
from pbkv.workloads.hover_like import HoverLike
from tests.predictor.conftest import runs

RUNS = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), min_size=1, max_size=12)


@settings(deadline=None, derandomize=True)
@given(RUNS, st.integers(1, 4), st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_each_step_is_a_distribution_over_agents_and_end(paths: list[list[str]], order: int, path: list[int]) -> None:
    names = list("abcde")  # e is never seen
    predictor = fit([Trace(str(n), tuple(p)) for n, p in enumerate(paths)], order, Roster(names))
    prediction = predictor.predict(Moment("w", path, len(path)))
    assert len(prediction.visits) == len(prediction.ends) == K_MAX
    for k in range(1, K_MAX + 1):
        assert sum(prediction.visits[k - 1].values()) + prediction.ends[k - 1] == pytest.approx(prediction.survival(k), abs=1e-9)
        assert END not in prediction.visits[k - 1]


def test_one_context_by_hand() -> None:
    """ab seen 3 times, followed by c, c and END; b alone as often. N = 3, D = 2 at either length, D = 0 at the root."""
    traces = [Trace("1", ("a", "b", "c")), Trace("2", ("a", "b", "c")), Trace("3", ("a", "b"))]
    names = ["a", "b", "c"]
    predictor = fit(traces, 2, Roster(names))
    root_c = 2 / 8  # of 8 calls, 2 are followed by c
    b_c = (2 + 2 * root_c) / 5
    assert predictor.predict(Moment("w", [0, 1], 2)).visits[0][2] == pytest.approx((2 + 2 * b_c) / 5)


def test_a_longer_memory_helps_where_the_path_matters() -> None:
    traces = [Trace(str(n), ("a", "x", "b") if n % 2 else ("c", "x", "d")) for n in range(40)]
    names = ["a", "b", "c", "d", "x"]
    one, two = (fit(traces, order, Roster(names)).predict(Moment("w", [0, 4], 2)).visits[0][1] for order in (1, 2))
    assert two > 0.9 > 0.6 > one


def test_agents_unknown_to_the_traces_end_the_memory() -> None:
    names = ["Planner", "Coder", "Tester", "Reviewer", "Stranger"]
    predictor = fit(runs(40), 3, Roster(names))
    assert predictor.predict(Moment("w", [0, 4, 1], 3)) == predictor.predict(Moment("w", [1], 1))
    assert predictor.predict(Moment("w", [4], 1)) == predictor.predict(Moment("v", [0, 4], 2))
    assert predictor.predict(Moment("w", [], 0)) == Prediction()


def test_answers_are_kept_until_the_cache_meets_more_agents() -> None:
    names = ["Planner"]
    predictor = fit(runs(40), 2, Roster(names))
    first = predictor.predict(Moment("w", [0], 1))
    assert predictor.predict(Moment("v", [0], 1)) is first
    names.append("Coder")
    assert predictor.predict(Moment("w", [0], 1)).visits[0][1] > 0.9


@pytest.mark.parametrize("order", [0, 9])
def test_an_order_out_of_range_is_refused(order: int) -> None:
    with pytest.raises(UsageError, match=f"order = {order}: expected a whole number from 1 to 8"):
        fit(runs(5), order)


def test_no_runs_no_chain() -> None:
    with pytest.raises(UsageError, match="no run"):
        fit([], 2)


def test_on_a_claim_checking_graph_memory_closes_most_of_the_gap() -> None:
    """The newest agent alone is far from the generator's own distribution; five agents are near it, and nothing is above it."""
    train, test = from_workload(HoverLike(), 1000, 1), from_workload(HoverLike(), 100, 2)
    names: list[str] = []
    one, five = (evaluate(fit(train, order, Roster(names)), test, names, steps=1)["prefill"][0]["accuracy"] for order in (1, 5))
    best = evaluate(Bayes(HoverLike().process, Roster(names)), test, names, steps=1)["prefill"][0]["accuracy"]
    assert one < best - 0.2
    assert best - 0.07 < five < best + 0.01


# ---- on disk ---------------------------------------------------------------------------------------------------------------


def saved(directory, order: int = 3) -> backoff.BackoffMarkov:
    predictor = fit(runs(40), order, Roster(["Coder", "Planner"]))
    predictor.save(directory, {"seed": 0})
    return predictor


def test_saved_and_loaded_it_predicts_the_same(tmp_path) -> None:
    predictor = saved(tmp_path)
    again = load_predictor(tmp_path, Roster(["Coder", "Planner"]))
    for path in ([0], [1, 0], [1, 0, 0], [1], [0, 0, 0]):
        assert again.predict(Moment("w", path, len(path))) == predictor.predict(Moment("w", path, len(path)))


def test_only_what_is_numbers_within_bounds_is_loaded(tmp_path) -> None:
    from safetensors.numpy import load_file, save_file

    saved(tmp_path)
    good = load_file(tmp_path / store.WEIGHTS)
    bad = {
        "agent": {"contexts": np.full_like(good["contexts"], 99)}, "filler": {"contexts": np.full_like(good["contexts"], -1)},
        "row": {"counts": good["counts"] + np.array([10**6, 0, 0, 0], np.int32)}, "negative": {"counts": -good["counts"]},
        "step": {"counts": good["counts"] + np.array([0, 8, 0, 0], np.int32)}, "empty": {"counts": good["counts"][:1]},
        "type": {"counts": good["counts"].astype(np.float32)}, "shape": {"counts": good["counts"][:, :3].copy()},
    }
    for change in bad.values():
        save_file(good | change, tmp_path / store.WEIGHTS)
        with pytest.raises(UsageError, match=r"weights\.safetensors"):
            load_predictor(tmp_path, Roster())


def test_a_config_with_another_order_is_noticed(tmp_path) -> None:
    saved(tmp_path)
    config = json.loads((tmp_path / store.CONFIG).read_text())
    for order in (2, 0, 99, "3", True, None):
        (tmp_path / store.CONFIG).write_text(json.dumps(config | {"order": order}))
        with pytest.raises(UsageError, match=r"order|contexts"):
            load_predictor(tmp_path, Roster())
