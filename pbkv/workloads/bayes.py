"""The best predictor there can be for a generator: its own conditional distribution, given the path."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache

from pbkv.knobs import K_MAX
from pbkv.predictor.base import Moment, Prediction
from pbkv.predictor.names import Roster
from pbkv.workloads.process import Process, State, advance, outlook

#: Workflows and states kept; both are found again from the path and the process.
KEPT = 8192


class Bayes:
    """Predicts what `process` does next.

    A workflow whose path the process cannot have made, or whose beginning is not known, gets an empty prediction. Agents that the cache
    has not met yet have no id and are left out.
    """

    version = 5
    at_reply = False  # the path says it all

    def __init__(self, process: Process, roster: Roster) -> None:
        self._process, self.roster = process, roster
        self._where: OrderedDict[str, tuple[int, State | None]] = OrderedDict()
        self._known: dict[State, Prediction] = {}
        self._agents = 0  # names met when those were made

    def observe(self, path: Sequence[int], agent: int) -> None:
        """There is nothing to learn."""

    def predict(self, moment: Moment) -> Prediction:
        """K_MAX steps. The answer is shared: do not change it."""
        state = self._state(moment)
        if state is None:
            return Prediction()
        if len(self._known) >= KEPT or self._agents != len(self.roster.names):
            self._known.clear()
            self._agents = len(self.roster.names)
        known = self._known.get(state)
        if known is None:
            visits, ends = _outlook(self._process, state)
            known = self._known[state] = Prediction(tuple(self._by_id(step) for step in visits), tuple(ends))
        return known

    def _state(self, moment: Moment) -> State | None:
        calls, state = self._where.pop(moment.workflow, (0, self._process.start))
        if not 0 <= moment.calls - calls <= len(moment.path):
            calls, state = (0, self._process.start) if moment.calls <= len(moment.path) else (moment.calls, None)
        for agent in list(moment.path)[len(moment.path) - (moment.calls - calls) :]:
            state = None if state is None else advance(self._process, state, self.roster.names[agent])
        self._where[moment.workflow] = (moment.calls, state)
        if len(self._where) > KEPT:
            self._where.popitem(last=False)
        return state

    def _by_id(self, step: dict[str, float]) -> dict[int, float]:
        return {agent: p for name, p in step.items() if (agent := self.roster.id(name)) is not None}


@lru_cache(maxsize=1 << 14)
def _outlook(process: Process, state: State) -> tuple[list[dict[str, float]], list[float]]:
    """The same for every cache: kept between them."""
    return outlook(process, state, K_MAX)
