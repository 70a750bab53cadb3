"""Predictions of a step: all at once, within the budget on average, and always answered."""

import logging
from collections.abc import Sequence

import pytest

from pbkv.knobs import K_MAX
from pbkv.predictor.base import END, Moment, Prediction
from pbkv.predictor.budget import MAX_DEBT, PART, Budgeted
from pbkv.predictor.markov import OnlineMarkov
from pbkv.predictor.mixed import Mixed
from tests.predictor.conftest import AGENTS
from tests.predictor.test_learned import serve

SURE = Prediction(({7: 1.0},) * K_MAX, (0.0,) * K_MAX)


class Clock:
    """Nanoseconds that pass when somebody predicts."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Slow:
    """Always agent 7; takes `cost` for each moment, and fails while `broken`."""

    version, at_reply = 6, True

    def __init__(self, clock: Clock, cost: int) -> None:
        self.clock, self.cost = clock, cost
        self.broken: Exception | None = None
        self.answer = SURE
        self.sizes: list[int] = []

    def observe(self, path: Sequence[int], agent: int) -> None: ...

    def predict(self, moment: Moment) -> Prediction:
        return self.predict_many([moment])[0]

    def predict_many(self, moments: Sequence[Moment]) -> list[Prediction]:
        self.clock.now += self.cost * len(moments)
        if self.broken:
            raise self.broken
        self.sizes.append(len(moments))
        return [self.answer] * len(moments)


def moments(count: int, calls: int = 1) -> list[Moment]:
    return [Moment(f"w{n}", [1], calls) for n in range(count)]


def taught() -> OnlineMarkov:
    online = OnlineMarkov()
    for _ in range(20):
        online.observe([1], 2)
        online.observe([1, 2], END)
    return online


def make(cost: int, budget: int) -> tuple[Budgeted, Slow]:
    clock = Clock()
    slow = Slow(clock, cost)
    return Budgeted(Mixed(slow, taught()), budget, clock), slow


def test_a_step_is_asked_in_parts_and_in_order() -> None:
    budgeted, slow = make(1, 10_000)
    answers = budgeted.answer(moments(2 * PART + 5))
    assert slow.sizes == [PART, PART, 5]
    assert [a.version for a in answers] == [8] * (2 * PART + 5)
    assert budgeted.counts == {"trained": 2 * PART + 5, "budget": 0, "error": 0}
    assert budgeted.answer([]) == []


def test_whoever_the_budget_leaves_out_is_answered_by_the_chain() -> None:
    budgeted, slow = make(10, 10 * PART)
    answers = budgeted.answer(moments(3 * PART))
    assert slow.sizes == [PART]
    assert [a.version for a in answers] == [8] * PART + [1] * 2 * PART
    assert answers[-1].prediction == taught().predict(Moment("w", [1], 1))
    assert max(answers[-1].prediction.visits[0], key=answers[-1].prediction.visits[0].__getitem__) == 2
    assert budgeted.counts == {"trained": PART, "budget": 2 * PART, "error": 0}


def test_a_part_that_took_too_long_is_paid_back() -> None:
    """The part of 32 takes three budgets: the next two steps are the chain's, then the trained one is asked again."""
    budgeted, slow = make(3 * 100, 100 * PART)
    versions = [budgeted.answer(moments(PART))[0].version for _ in range(7)]
    assert versions == [8, 1, 1, 8, 1, 1, 8]
    assert len(slow.sizes) == 3


def test_one_hiccup_does_not_silence_the_predictor_for_long() -> None:
    budgeted, slow = make(1, 100)
    slow.cost = 10**9
    budgeted.answer(moments(1))
    slow.cost = 1
    silent = 0
    while budgeted.answer(moments(1))[0].version != 8:
        silent += 1
    assert silent == MAX_DEBT


def test_a_predictor_that_fails_is_answered_for_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    budgeted, slow = make(1, 10_000)
    slow.broken = RuntimeError("no weights " + "x" * 500)
    with caplog.at_level(logging.ERROR):
        answers = [budgeted.answer(moments(3)) for _ in range(5)]
    assert {a.version for step in answers for a in step} == {1}
    assert budgeted.counts == {"trained": 0, "budget": 0, "error": 15}
    assert budgeted.fault.startswith("RuntimeError: no weights") and len(budgeted.fault) <= 200
    assert len(caplog.records) == 1
    slow.broken = None
    assert budgeted.answer(moments(1))[0].version == 8


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e9])
def test_what_is_not_a_probability_never_leaves(value: float) -> None:
    budgeted, slow = make(1, 10_000)
    slow.answer = Prediction(({1: value},) * K_MAX, (0.0,) * K_MAX)
    assert budgeted.answer(moments(1))[0].version == 1
    assert budgeted.counts["error"] == 1


def test_there_is_an_answer_even_when_the_chain_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ranks wait in a collective: silence would hold the server."""
    budgeted, slow = make(1, 10_000)
    slow.broken = RuntimeError("gone")

    def fail(*_: object) -> Prediction:
        raise ZeroDivisionError("chain")

    monkeypatch.setattr(OnlineMarkov, "predict", fail)
    assert budgeted.answer(moments(2)) == [(Prediction(), 1)] * 2
    assert budgeted.fault.startswith("ZeroDivisionError")


def test_the_chain_learns_while_it_is_not_asked() -> None:
    clock = Clock()
    mixed = Mixed(Slow(clock, 10))
    budgeted = Budgeted(mixed, 1, clock)
    budgeted.answer(moments(1))  # over the budget from here on
    for _ in range(50):
        mixed.observe([1], 3)
    visits = budgeted.answer(moments(1))[0].prediction.visits[0]
    assert max(visits, key=visits.__getitem__) == 3


def test_together_is_the_same_as_one_after_the_other(trained) -> None:
    """The mixture of a real network: the same predictions, and the same evidence afterwards."""
    names = [*AGENTS]
    one, many = (Mixed(serve(trained, names)) for _ in range(2))
    paths: dict[str, list[int]] = {f"w{n}": [] for n in range(6)}
    for step in range(8):
        asked = []
        for n, (name, path) in enumerate(paths.items()):
            agent = (n + step * step) % len(names)
            for mixed in (one, many):
                mixed.observe(path, agent)
            path.append(agent)
            asked.append(Moment(name, list(path), len(path)))
        singly = [one.predict(moment) for moment in asked]
        for a, b in zip(singly, many.predict_many(asked), strict=True):
            assert a.ends == pytest.approx(b.ends, abs=1e-3)
            assert all(x.get(k, 0) == pytest.approx(y.get(k, 0), abs=1e-3) for x, y in zip(a.visits, b.visits, strict=True) for k in x | y)
    for agent in range(len(names)):
        assert one.weights(agent) == pytest.approx(many.weights(agent), abs=1e-3)


def test_a_call_is_scored_once_whether_its_prefill_was_predicted_or_not() -> None:
    clock = Clock()
    both, reply_only = (Mixed(Slow(clock, 0), taught()) for _ in range(2))
    for calls in (1, 2, 3):
        path = [1] * calls
        both.predict(Moment("w", path, calls))
        for mixed in (both, reply_only):
            mixed.predict(Moment("w", path, calls, reply=True))
    assert both.weights(1) == reply_only.weights(1)
