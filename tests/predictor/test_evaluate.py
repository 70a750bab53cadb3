"""Evaluation: figures by hand, END as a class, no outcome beyond it, and learning only where it is asked for."""

import math

import numpy as np
import pytest

from pbkv.predictor.base import END, Moment, Prediction
from pbkv.predictor.dataset import Trace, from_workload
from pbkv.predictor.evaluate import FLOOR, Score, calibration_error, classes, evaluate
from pbkv.predictor.markov import OnlineMarkov
from pbkv.predictor.names import Roster
from pbkv.predictor.perfect import Perfect
from pbkv.predictor.uniform import Uniform
from pbkv.workloads.hover_like import HoverLike


def test_figures_by_hand() -> None:
    score = Score()
    score.add({0: 0.75, END: 0.25}, 0)
    score.add({0: 0.75, END: 0.25}, END)
    found = score.summary()
    assert found["n"] == 2 and found["accuracy"] == 0.5
    assert found["nll"] == pytest.approx(-(math.log(0.75) + math.log(0.25)) / 2, abs=1e-4)
    assert found["brier"] == pytest.approx(((0.25**2 + 0.25**2) + (0.75**2 + 0.75**2)) / 2, abs=1e-4)
    assert found["ece"] == pytest.approx(0.25, abs=1e-4)


def test_an_empty_prediction_is_a_miss_with_a_bounded_loss() -> None:
    score = Score()
    score.add({}, 3)
    assert score.summary() == {"n": 1, "accuracy": 0.0, "nll": round(-math.log(FLOOR), 4), "brier": 1.0, "ece": 0.0}


def test_calibrated_confidence_has_no_error_and_boasting_has() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.2, 1.0, 50_000)
    hits = (rng.random(50_000) < confidence).astype(float)
    assert calibration_error(confidence, hits) < 0.01
    assert calibration_error(np.minimum(1, confidence + 0.1), hits) == pytest.approx(0.09, abs=0.02)


def test_classes_are_given_that_the_step_exists() -> None:
    prediction = Prediction(({0: 0.5}, {0: 0.25}), (0.5, 0.25))
    assert classes(prediction, 1) == {END: 0.5, 0: 0.5}
    assert classes(prediction, 2) == {END: 0.5, 0: 0.5}
    assert classes(Prediction(({0: 0.0}, {}), (1.0, 0.0)), 2) == {}
    assert classes(Prediction(), 1) == {}


def test_the_true_future_scores_full_marks_where_there_is_an_outcome() -> None:
    traces = [Trace("w", ("a", "b", "a")), Trace("v", ("a",))]
    names = ["a", "b"]
    scores = evaluate(Perfect({t.name: t.agents for t in traces}, Roster(names)), traces, names)
    assert list(scores) == ["prefill"]
    assert [step["n"] for step in scores["prefill"]] == [4, 2, 1]  # 3 + 1 calls; beyond the end nothing is counted
    assert all(step["accuracy"] == 1.0 and step["nll"] == 0.0 for step in scores["prefill"])


def test_whoever_knows_nothing_is_as_good_as_chance() -> None:
    traces = from_workload(HoverLike(), 60, 4)
    names = sorted({a for t in traces for a in t.agents})
    step = evaluate(Uniform(Roster(names)), traces, names, steps=1)["prefill"][0]
    assert step["nll"] == pytest.approx(math.log(len(names) + 1), abs=1e-3)


def test_learning_happens_only_when_it_is_asked_for() -> None:
    traces = from_workload(HoverLike(), 60, 4)
    assert evaluate(OnlineMarkov(), traces, [], steps=1)["prefill"][0]["accuracy"] == 0.0
    assert evaluate(OnlineMarkov(), traces, [], steps=1, learn=True)["prefill"][0]["accuracy"] > 0.4


def test_a_prediction_never_sees_what_comes() -> None:
    """What is asked at each moment: the path so far, and the text known by then."""
    asked: list[Moment] = []

    class Notes:
        version, at_reply = 0, True

        def observe(self, path, agent) -> None: ...

        def predict(self, moment: Moment) -> Prediction:
            asked.append(moment)
            return Prediction()

    texts = np.eye(3, dtype=np.float32)
    evaluate(Notes(), [Trace("w", ("a", "b", "b"), texts)], [])
    assert [(list(m.path), m.calls, m.reply) for m in asked] == [
        ([0], 1, False), ([0], 1, True), ([0, 1], 2, False), ([0, 1], 2, True), ([0, 1, 1], 3, False), ([0, 1, 1], 3, True),
    ]
    known = [None if m.text is None else int(np.argmax(m.text)) for m in asked]
    assert known == [None, 0, 0, 1, 1, 2]


def test_progress_is_told_run_by_run() -> None:
    done: list[int] = []
    evaluate(OnlineMarkov(), [Trace("w", ("a",)), Trace("v", ("a",))], [], progress=done.append)
    assert done == [1, 2]
