"""A predictor spoilt on purpose, for experiments with wrong predictions."""

import random
from collections.abc import Sequence

from pbkv.errors import UsageError
from pbkv.predictor.base import Moment, Prediction, Predictor
from pbkv.predictor.names import Roster


class Noisy:
    """With probability p, independently per call and step, the agents of that step give way to one other agent, drawn uniformly from
    the agents met so far without the likeliest. Ends stay as they are, so each step keeps its probability to exist.

    What is drawn depends on seed, workflow, call and step alone: the same mistakes whatever the policy, and the same at the prefill and
    at the reply of a call. A larger p keeps the mistakes of a smaller one.
    """

    version = 3

    def __init__(self, base: Predictor, p: float, roster: Roster, seed: int = 0) -> None:
        if not 0.0 <= p <= 1.0:
            raise UsageError(f"noise p = {p}: expected a probability from 0 to 1")
        self._base, self._p, self._seed, self.roster = base, p, seed, roster
        self.at_reply = base.at_reply

    def observe(self, path: Sequence[int], agent: int) -> None:
        self._base.observe(path, agent)

    def predict(self, moment: Moment) -> Prediction:
        prediction = self._base.predict(moment)
        rng = random.Random(f"{self._seed}/{moment.workflow}/{moment.calls}")
        draws = [(rng.random(), rng.random()) for _ in prediction.visits]
        visits = (self._spoil(visit, where) if u < self._p else visit for visit, (u, where) in zip(prediction.visits, draws, strict=True))
        return Prediction(tuple(visits), prediction.ends)

    def _spoil(self, visit: dict[int, float], where: float) -> dict[int, float]:
        agents = len(self.roster.names)
        if not visit or agents < 2:
            return visit
        likeliest = max(visit, key=visit.__getitem__)
        wrong = int(where * (agents - 1))
        return {wrong + (wrong >= likeliest): sum(visit.values())}
