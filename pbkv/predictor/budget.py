"""Predictions of a scheduler step, all at once and within a time budget. Whoever the budget leaves out, or the trained predictor fails, is
answered by the online chain, which learns all the time.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pbkv.knobs import K_MAX
from pbkv.predictor.base import Moment, Prediction
from pbkv.predictor.mixed import Mixed

log = logging.getLogger("pbkv")
#: Moments asked for at once: the clock is read between two such parts, so one part is what a step may take too long.
PART = 8
#: Longest that a step which took too long is made up for, in budgets: one hiccup must not silence the predictor for minutes.
MAX_DEBT = 50
#: Least time between two messages about a predictor that fails, seconds.
SAY_S = 10.0
#: How predictions came about: as configured, by the chain because the time was up, or because the trained predictor failed.
OUTCOMES = ("trained", "budget", "error")


class Answer(NamedTuple):
    """A prediction and the version of the predictor that made it."""

    prediction: Prediction
    version: int


class Budgeted:
    """Measured time decides who is answered by whom, so of several ranks one asks and tells the others.

    A part that runs over the budget is paid back by the next steps, so `budget_ns` holds on average whatever one part takes.
    """

    def __init__(self, mixed: Mixed, budget_ns: int, timer: Callable[[], int] = time.perf_counter_ns) -> None:
        self._mixed, self._budget, self._timer = mixed, budget_ns, timer
        self._debt = 0
        self._said = -SAY_S
        #: Predictions by outcome.
        self.counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        #: The newest failure of the trained predictor, for people; empty = none.
        self.fault = ""

    def answer(self, moments: Sequence[Moment]) -> list[Answer]:
        """One answer per moment, in order; every path must have a call. Never raises."""
        started, left = self._timer(), self._budget - self._debt
        answers: list[Answer] = []
        while len(answers) < len(moments) and self._timer() - started < left:
            answers += self._part(moments[len(answers) : len(answers) + PART])
        answers += self._chain(moments[len(answers) :], "budget")
        self._debt = min(max(0, self._timer() - started - left), MAX_DEBT * self._budget)
        return answers

    def _part(self, moments: Sequence[Moment]) -> list[Answer]:
        try:
            answers = [Answer(_sound(prediction), self._mixed.version) for prediction in self._mixed.predict_many(moments)]
        except Exception as error:
            self._failed(error)
            return self._chain(moments, "error")
        self.counts["trained"] += len(answers)
        return answers

    def _chain(self, moments: Sequence[Moment], outcome: str) -> list[Answer]:
        self.counts[outcome] += len(moments)
        return [Answer(self._guess(moment), self._mixed.online.version) for moment in moments]

    def _guess(self, moment: Moment) -> Prediction:
        try:
            return self._mixed.online.predict(moment)
        except Exception as error:
            # Other ranks wait for an answer, whatever it is.
            self._failed(error)
            return Prediction()

    def _failed(self, error: Exception) -> None:
        self.fault = f"{type(error).__name__}: {error}"[:200]
        if (now := time.monotonic()) - self._said > SAY_S:
            self._said = now
            log.error("the predictor failed, the online chain answers: %s", self.fault, exc_info=error)


def _sound(prediction: Prediction) -> Prediction:
    """What is not a number would spread from here into every score of the workflow, and could not be sent."""
    total = sum(prediction.ends) + sum(sum(visits.values()) for visits in prediction.visits)
    if not -0.001 <= total <= K_MAX + 1:
        raise ValueError(f"a prediction sums up to {total}, which no probabilities do")
    return prediction
