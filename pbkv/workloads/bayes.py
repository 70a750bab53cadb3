"""The best predictor there can be for a generator: its own conditional distribution, given the path."""

from collections import OrderedDict
from collections.abc import Sequence

from pbkv.knobs import K_MAX
from pbkv.predictor.base import Moment, Prediction
from pbkv.workloads.process import Process, State, advance, outlook

#: Workflows and states kept; both are recomputed when they come again.
KEPT = 8192


class Bayes:
    """Predicts what `process` does next. `names[id]` is the name of an agent; the list may grow.

    A workflow whose path the process cannot have made, or of which the beginning is not known, gets an empty prediction.
    """

    version = 1
    at_reply = False  # the path says it all

    def __init__(self, process: Process, names: Sequence[str]) -> None:
        self._process = process
        self._names = names
        self._ids: dict[str, int] = {}
        self._where: OrderedDict[str, tuple[int, State | None]] = OrderedDict()
        self._outlooks: dict[State, tuple[list[dict[str, float]], list[float]]] = {}

    def observe(self, path: Sequence[int], agent: int) -> None:
        """Nothing to learn."""

    def predict(self, moment: Moment) -> Prediction:
        """K_MAX steps. Agents without an id yet cannot be named and are left out."""
        state = self._state(moment)
        if state is None:
            return Prediction()
        visits, ends = self._outlook(state)
        ids = self._agent_ids()
        return Prediction(tuple({ids[a]: p for a, p in step.items() if a in ids} for step in visits), tuple(ends))

    def _state(self, moment: Moment) -> State | None:
        calls, state = self._where.pop(moment.workflow, (0, self._process.start))
        if calls > moment.calls or moment.calls - calls > len(moment.path):
            calls, state = (0, self._process.start) if moment.calls == len(moment.path) else (moment.calls, None)
        for agent in list(moment.path)[len(moment.path) - (moment.calls - calls) :]:
            state = None if state is None else advance(self._process, state, self._names[agent])
        self._where[moment.workflow] = (moment.calls, state)
        if len(self._where) > KEPT:
            self._where.popitem(last=False)
        return state

    def _outlook(self, state: State) -> tuple[list[dict[str, float]], list[float]]:
        known = self._outlooks.get(state)
        if known is None:
            if len(self._outlooks) >= KEPT:
                self._outlooks.clear()
            known = self._outlooks[state] = outlook(self._process, state, K_MAX)
        return known

    def _agent_ids(self) -> dict[str, int]:
        for agent in range(len(self._ids), len(self._names)):
            self._ids.setdefault(self._names[agent], agent)
        return self._ids
