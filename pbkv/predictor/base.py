"""The protocol of predictors, and what a prediction is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

#: The agent id that stands for the end of the workflow.
END = -1


@dataclass(frozen=True)
class Prediction:
    """`visits[k-1][a]` = s^(k) P^(k)[a]: probability that step k from now exists and is agent a. `ends[k-1]` = probability that the
    workflow ends exactly at step k. Both over K_MAX steps; empty when nothing is known.
    """

    visits: tuple[dict[int, float], ...] = ()
    ends: tuple[float, ...] = ()

    def survival(self, k: int) -> float:
        """s^(k): probability that the workflow has not ended before step k (k from 1); s^(1) = 1."""
        return max(0.0, 1.0 - sum(self.ends[: k - 1]))


@dataclass(frozen=True, slots=True)
class Moment:
    """What is known when a prediction is made. There are two: at the prefill of the newest call, and once more when it has ended."""

    workflow: str  #: name of the workflow
    path: Sequence[int]  #: agents called so far, newest last, bounded
    calls: int  #: calls so far, also those no longer in `path`
    reply: bool = False  #: the newest call has ended
    text: object = None  #: text signal of the newest output that is known, a vector; None = there is none


class Predictor(Protocol):
    """Agents are ids. `version` goes into events, so that accuracy can be told apart by predictor."""

    version: int
    #: Wants to predict again when a call has ended.
    at_reply: bool

    def observe(self, path: Sequence[int], agent: int) -> None:
        """Learn that `agent`, or END, came after the agents of `path` (newest last; empty at the first step)."""
        ...

    def predict(self, moment: Moment) -> Prediction:
        """What follows, for K_MAX steps."""
        ...


@runtime_checkable
class Together(Protocol):
    """A predictor for which many at once cost less than one after the other."""

    def predict_many(self, moments: Sequence[Moment]) -> Sequence[Prediction]:
        """One prediction per moment; every path must have a call."""
        ...


def predict_all(predictor: Predictor, moments: Sequence[Moment]) -> list[Prediction]:
    """One prediction per moment; every path must have a call."""
    if isinstance(predictor, Together):
        return list(predictor.predict_many(moments))
    return [predictor.predict(moment) for moment in moments]
