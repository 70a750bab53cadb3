"""Online first-order Markov predictor: counts transitions as they happen, usable from the first call on."""

import heapq
from collections.abc import Iterable, Sequence

from pbkv.knobs import K_MAX
from pbkv.predictor.base import END, Moment, Prediction

#: Weight of the overall agent distribution beside the counts of the current agent.
PRIOR = 1.0
#: Successors kept per agent, and agents kept in all: the table stays bounded whatever names callers invent.
MAX_SUCCESSORS = 256
MAX_AGENTS = 4096
#: Likeliest agents followed from one step to the next, and agents that the overall distribution is spread over. With the limits above
#: it bounds the time of a prediction, which the scheduler waits for; the rest goes on by the overall distribution.
BEAM = 32
#: A walk is kept until the observations of its agent have grown by one part in FRESH, or all observations have doubled: a prediction
#: knows at least 4/5 of the former and half of the latter, and all of the former while there are no more than FRESH. So the number of
#: walks grows with the logarithm of the calls only.
FRESH = 4


class OnlineMarkov:
    """P(b | a) = (n_ab + PRIOR pi_b) / (n_a + PRIOR), pi = overall share of b; END is one of the b. Counts are whole numbers and the
    walks plain Python, so every rank that saw the same calls predicts bit for bit the same.
    """

    version = 1
    at_reply = False  # what a call said tells it nothing

    def __init__(self) -> None:
        self._counts: dict[int, dict[int, int]] = {}
        self._totals: dict[int, int] = {}
        self._share: dict[int, int] = {}
        self._seen = 0
        self._walks: dict[int, tuple[int, int, Prediction]] = {}  # agent -> next total and next overall count to walk anew, walk
        self._common: tuple[int, list[int]] = (0, [])

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
        """K_MAX steps from the current agent; nothing observed yet gives an empty prediction. The answer is shared: do not change it."""
        if not self._seen or not moment.path:
            return Prediction()
        agent = moment.path[-1]
        total = self._totals.get(agent, 0)
        # Agents never followed by anything share one walk, kept under END: the table of walks is bounded like the counts.
        known = self._walks.get(agent if total else END)
        if known is not None and total < known[0] and self._seen < known[1]:
            return known[2]
        walk = self._walk(agent)
        self._walks[agent if total else END] = (total + max(1, total // FRESH), 2 * self._seen, walk)
        return walk

    def _walk(self, agent: int) -> Prediction:
        common = self._commonest()
        state, loose = {agent: 1.0}, 0.0
        visits: list[dict[int, float]] = []
        ends: list[float] = []
        for _ in range(K_MAX):
            after, spread = self._step(state, loose)
            end = after.pop(END, 0.0) + spread * self._share.get(END, 0) / self._seen
            loose = spread * (self._seen - self._share.get(END, 0)) / self._seen
            for other in common:
                part = spread * self._share[other] / self._seen
                after[other] = after.get(other, 0.0) + part
                loose -= part
            state = _likeliest(after)
            # Rounding may leave a few units in the last place below zero.
            loose = max(0.0, loose) + (sum(after.values()) - sum(state.values()) if len(state) < len(after) else 0.0)
            visits.append(state)
            ends.append(end)
        return Prediction(tuple(visits), tuple(ends))

    def _step(self, state: dict[int, float], loose: float) -> tuple[dict[int, float], float]:
        """What follows by the counts, and the probability that follows the overall distribution instead."""
        after: dict[int, float] = {}
        for agent, p in state.items():
            scale = p / (self._totals.get(agent, 0) + PRIOR)
            loose += scale * PRIOR
            for successor, n in self._counts.get(agent, {}).items():
                after[successor] = after.get(successor, 0.0) + scale * n
        return after, loose

    def _commonest(self) -> Iterable[int]:
        """Up to BEAM agents that were called most; with more agents than that, chosen anew when the observations have doubled."""
        if len(self._share) <= BEAM:
            return [agent for agent in self._share if agent != END]
        if self._seen >= self._common[0]:
            ranked = heapq.nsmallest(BEAM + 1, self._share.items(), key=lambda item: (-item[1], item[0]))
            self._common = (2 * self._seen, [agent for agent, _ in ranked if agent != END][:BEAM])
        return self._common[1]


def _likeliest(state: dict[int, float]) -> dict[int, float]:
    if len(state) <= BEAM:
        return state
    return dict(heapq.nsmallest(BEAM, state.items(), key=lambda item: (-item[1], item[0])))
