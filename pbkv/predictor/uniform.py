"""A predictor that knows nothing, for experiments: every agent met so far, or the end, with equal probability at every step."""

from collections.abc import Sequence

from pbkv.knobs import K_MAX
from pbkv.predictor.base import Moment, Prediction
from pbkv.predictor.names import Roster


class Uniform:
    """P^(k)[a] = P^(k)[END] = 1 / (A + 1) for the A agents met so far, so s^(k) = (A / (A + 1))^(k-1)."""

    version = 4
    at_reply = False

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self._made: tuple[int, Prediction] = (0, Prediction())

    def observe(self, path: Sequence[int], agent: int) -> None:
        """There is nothing to learn."""

    def predict(self, moment: Moment) -> Prediction:
        """Made once per number of agents and shared: do not change it."""
        agents = len(self.roster.names)
        if self._made[0] != agents:
            self._made = (agents, _uniform(agents))
        return self._made[1]


def _uniform(agents: int) -> Prediction:
    each = [(agents / (agents + 1)) ** k / (agents + 1) for k in range(K_MAX)]
    return Prediction(tuple(dict.fromkeys(range(agents), p) for p in each), tuple(each))
