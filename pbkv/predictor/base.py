"""The protocol of predictors, and what a prediction is."""

from dataclasses import dataclass
from typing import Protocol

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


class Predictor(Protocol):
    """Agents are ids. `version` goes into events, so that accuracy can be told apart by predictor."""

    version: int

    def observe(self, previous: int | None, agent: int) -> None:
        """Learn one transition; `agent` may be END, `previous` None at the first step."""
        ...

    def predict(self, path: list[int]) -> Prediction:
        """What follows the agents called so far (newest last), for K_MAX steps."""
        ...
