"""The true future, for experiments: what eviction and prefetch could do at best with any predictor."""

from collections.abc import Mapping, Sequence

from pbkv.knobs import K_MAX
from pbkv.predictor.base import Moment, Prediction
from pbkv.predictor.names import Roster


class Perfect:
    """Looks a workflow's calls up by its name. A workflow it does not know gets an empty prediction; an agent that the cache has not met
    yet has no nodes either and is left out.
    """

    version = 2
    at_reply = False  # the end of a call tells it nothing new

    def __init__(self, futures: Mapping[str, Sequence[str]], roster: Roster) -> None:
        """`futures`: agent names of all calls, in order, by name of workflow; the workflow ends after the last."""
        self._futures, self.roster = futures, roster

    def observe(self, path: Sequence[int], agent: int) -> None:
        """There is nothing to learn."""

    def predict(self, moment: Moment) -> Prediction:
        calls = self._futures.get(moment.workflow)
        if calls is None:
            return Prediction()
        coming = calls[moment.calls : moment.calls + K_MAX]
        visits = [self._visit(name) for name in coming]
        ends = [0.0] * K_MAX
        left = len(calls) - moment.calls
        if 0 <= left < K_MAX:
            ends[left] = 1.0
        return Prediction((*visits, *({} for _ in range(K_MAX - len(visits)))), tuple(ends))

    def _visit(self, name: str) -> dict[int, float]:
        agent = self.roster.id(name)
        return {} if agent is None else {agent: 1.0}
