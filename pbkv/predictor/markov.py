"""Online first-order Markov predictor: counts transitions as they happen, usable from the first call on."""

import heapq
from collections.abc import Sequence

from pbkv.knobs import K_MAX
from pbkv.predictor.base import END, Moment, Prediction

#: Weight of the overall agent distribution beside the counts of the current agent.
PRIOR = 1.0
#: Successors kept per agent, and agents kept in all: the table stays bounded whatever names callers invent.
MAX_SUCCESSORS = 256
MAX_AGENTS = 4096
#: Likeliest agents followed from one step to the next. With the limits above it bounds the time of a prediction, which the scheduler
#: waits for; what is dropped goes on by the overall distribution.
BEAM = 32


class OnlineMarkov:
    """P(b | a) = (n_ab + PRIOR pi_b) / (n_a + PRIOR), pi = overall share of b; END is one of the b. Counts are whole numbers, so
    every rank that saw the same calls predicts bit for bit the same.
    """

    version = 1
    at_reply = False  # what a call said tells it nothing

    def __init__(self) -> None:
        self._counts: dict[int, dict[int, int]] = {}
        self._totals: dict[int, int] = {}
        self._share: dict[int, int] = {}
        self._seen = 0

    def observe(self, path: Sequence[int], agent: int) -> None:
        """Count one transition. The first agent of a workflow has no predecessor and tells nothing about successors."""
        if not path:
            return
        previous = path[-1]
        row = self._counts.get(previous)
        if row is None:
            if len(self._counts) >= MAX_AGENTS:
                return
            row = self._counts[previous] = {}
        if agent not in row and len(row) >= MAX_SUCCESSORS:
            return
        row[agent] = row.get(agent, 0) + 1
        self._totals[previous] = self._totals.get(previous, 0) + 1
        self._share[agent] = self._share.get(agent, 0) + 1
        self._seen += 1

    def predict(self, moment: Moment) -> Prediction:
        """Walk K_MAX steps from the current agent; nothing observed yet gives an empty prediction."""
        if not self._seen or not moment.path:
            return Prediction()
        state = {moment.path[-1]: 1.0}
        dropped = 0.0
        visits: list[dict[int, float]] = []
        ends: list[float] = []
        for _ in range(K_MAX):
            after, end = self._step(state, dropped)
            state = _likeliest(after)
            dropped = sum(after.values()) - sum(state.values())
            visits.append(state)
            ends.append(end)
        return Prediction(tuple(visits), tuple(ends))

    def _step(self, state: dict[int, float], dropped: float) -> tuple[dict[int, float], float]:
        after: dict[int, float] = {}
        spread = dropped
        for agent, p in state.items():
            total = self._totals.get(agent, 0)
            scale = p / (total + PRIOR)
            spread += scale * PRIOR
            for successor, n in self._counts.get(agent, {}).items():
                after[successor] = after.get(successor, 0.0) + scale * n
        for agent, n in self._share.items():
            after[agent] = after.get(agent, 0.0) + spread * n / self._seen
        end = after.pop(END, 0.0)
        return after, end


def _likeliest(state: dict[int, float]) -> dict[int, float]:
    if len(state) <= BEAM:
        return state
    return dict(heapq.nsmallest(BEAM, state.items(), key=lambda item: (-item[1], item[0])))
