"""Markov of order n with back-off, fitted from traces: what followed the newest n agents, else the newest n - 1, and so on.

    P_n^(k)(c) = (N_n^(k)(c) + D_n P_{n-1}^(k)(c)) / (N_n + D_n)

N: outcomes after the context, D: different agents (or END) seen right after it (Witten and Bell 1991, method C). Each step k is counted by
itself, ends that happened before included, so the steps agree with each other and memory is not lost by chaining one-step guesses.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from pbkv.errors import UsageError
from pbkv.knobs import K_MAX
from pbkv.predictor import store
from pbkv.predictor.base import Moment, Prediction
from pbkv.predictor.dataset import Trace, roster
from pbkv.predictor.features import Ints
from pbkv.predictor.names import Roster

MAX_ORDER = 8
#: Contexts kept, the most frequent ones; one seen once says no more than the shorter one below it.
MAX_CONTEXTS = 50_000
#: Predictions kept, by context.
KEPT = 4096
_NONE = -2


class BackoffMarkov:
    """Learns from traces only. Agents that they did not name end a context: what follows is told by the newer agents alone."""

    version = 7
    at_reply = False

    def __init__(self, contexts: Mapping[tuple[int, ...], Ints], agents: Sequence[str], order: int, names: Roster) -> None:
        """`contexts`: agents (places in `agents`), oldest first -> counts [K_MAX, A + 2]: agent, END, ended before."""
        self._contexts, self._agents, self._order, self.roster = contexts, agents, order, names
        self._place = {name: n for n, name in enumerate(agents)}
        self._made: dict[tuple[int, ...], tuple[int, Prediction]] = {}

    def observe(self, path: Sequence[int], agent: int) -> None:
        """It learns from traces only."""

    def predict(self, moment: Moment) -> Prediction:
        """Shared by all moments with the same newest agents: do not change it."""
        if not moment.path:
            return Prediction()
        context = self._context(moment.path)
        # Kept until the cache meets more agents: one of them may be among those that follow.
        known = self._made.get(context)
        if known is not None and known[0] == len(self.roster.names):
            return known[1]
        if len(self._made) >= KEPT:
            self._made.clear()
        prediction = self._predict(context)
        self._made[context] = (len(self.roster.names), prediction)
        return prediction

    def _context(self, path: Sequence[int]) -> tuple[int, ...]:
        newest: list[int] = []
        for agent in reversed(path[-self._order :]):
            place = self._place.get(self.roster.names[agent])
            if place is None:
                break
            newest.append(place)
        return tuple(reversed(newest))

    def _predict(self, context: tuple[int, ...]) -> Prediction:
        p = self.distribution(context)
        ids = [self.roster.id(name) for name in self._agents]
        visits = [{agent: q for agent, q in zip(ids, row, strict=False) if agent is not None and q > 0} for row in p.tolist()]
        return Prediction(tuple(visits), tuple(p[:, -2].tolist()))

    def distribution(self, context: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """[K_MAX, A + 2], each row sums to 1."""
        p = np.full((K_MAX, len(self._agents) + 2), 0.0)
        for start in range(len(context), -1, -1):
            counts = self._contexts.get(context[start:])
            if counts is None:
                break
            different = np.count_nonzero(counts[0]) if start < len(context) else 0
            p = (counts + different * p) / (counts[0].sum() + different)
        return p

    def save(self, directory: Path, about: Mapping[str, Any]) -> None:
        """Config and counts; `about` is added to the config. Raises PbkvError."""
        keys = np.full((len(self._contexts), self._order), _NONE, np.int32)
        cells: list[np.ndarray[Any, Any]] = []
        for n, (context, counts) in enumerate(self._contexts.items()):
            keys[n, self._order - len(context) :] = context
            step, what = np.nonzero(counts)
            cells.append(np.stack([np.full(len(step), n), step, what, counts[step, what]], 1))
        arrays = {"contexts": keys, "counts": np.concatenate(cells).astype(np.int32)}
        store.save(directory, arrays, {"kind": "markov", "order": self._order, "agents": list(self._agents), **about})


def fit(traces: Sequence[Trace], order: int, names: Roster | None = None) -> BackoffMarkov:
    """Count all contexts up to `order` agents. Raises UsageError for an order outside 1..MAX_ORDER, or without runs."""
    if not 1 <= order <= MAX_ORDER:
        raise UsageError(f"order = {order}: expected a whole number from 1 to {MAX_ORDER}")
    if not traces:
        raise UsageError("traces hold no run: nothing to learn from")
    agents = roster(traces)
    place = {name: n for n, name in enumerate(agents)}
    runs = [[place[agent] for agent in trace.agents] for trace in traces]
    kept = _kept(runs, order)
    contexts = {context: np.zeros((K_MAX, len(agents) + 2), np.int64) for context in kept}
    steps = np.arange(K_MAX)
    for run in runs:
        future = np.array([*run, len(agents), *[len(agents) + 1] * K_MAX])
        for n in range(1, len(run) + 1):
            coming = future[n : n + K_MAX]
            for length in range(min(order, n) + 1):
                counts = contexts.get(tuple(run[n - length : n]))
                if counts is None:
                    break  # a longer context is no more frequent than a shorter one
                counts[steps, coming] += 1
    return BackoffMarkov(contexts, agents, order, names or Roster())


def _kept(runs: Sequence[Sequence[int]], order: int) -> list[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for run in runs:
        for n in range(1, len(run) + 1):
            found.update(tuple(run[n - length : n]) for length in range(min(order, n) + 1))
    # Shorter first among equals, so that a context is never kept without those it backs off to.
    ranked = sorted(found.items(), key=lambda item: (-item[1], len(item[0]), item[0]))
    return [context for context, n in ranked[:MAX_CONTEXTS] if n > 1 or len(context) < 2]


def load(directory: Path, config: dict[str, Any], names: Roster) -> BackoffMarkov:
    """From its folder. Raises UsageError that names what is missing or wrong."""
    order = store.whole(directory, config, "order", 1, MAX_ORDER)
    agents = cast("list[str]", config["agents"])
    arrays = store.read_weights(directory, {"contexts": (-1, order), "counts": (-1, 4)}, np.int32)
    keys, cells = arrays["contexts"], arrays["counts"].astype(np.int64)
    limits = np.array([len(keys), K_MAX, len(agents) + 2, 1 << 31])
    sound = len(keys) <= MAX_CONTEXTS and ((keys >= _NONE) & (keys < len(agents)) & (keys != -1)).all()
    if not sound or (cells < 0).any() or (cells >= limits).any() or len(keys) * K_MAX * (len(agents) + 2) > 1 << 28:
        raise UsageError(f"{str(directory / store.WEIGHTS)!r}: contexts or counts are out of range; train the predictor again")
    counts = np.zeros((len(keys), K_MAX, len(agents) + 2), np.int64)
    counts[cells[:, 0], cells[:, 1], cells[:, 2]] = cells[:, 3]
    if not (counts[:, 0].sum(1) > 0).all():
        raise UsageError(f"{str(directory / store.WEIGHTS)!r}: a context without counts; train the predictor again")
    contexts = {tuple(a for a in key if a != _NONE): counts[n] for n, key in enumerate(keys.tolist())}
    return BackoffMarkov(contexts, agents, order, names)

