"""The call graph of a set of runs: who follows whom how often, where runs start and end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pbkv.predictor.features import NODE_DIM, STRUCTURE_DIM, Floats, Ints, name_vector

#: An edge stands in the list once per eighth of its probability, at least once: a mean over neighbours becomes a weighted one.
COPIES = 8


@dataclass(frozen=True)
class CallGraph:
    """`counts[a, b]`: how often b followed a; column A: how often a run ended after a. `starts[a]`: runs that began with a."""

    names: tuple[str, ...]
    counts: Ints
    starts: Ints

    def nodes(self) -> Floats:
        """[A, NODE_DIM]: name and structure of each agent."""
        names = np.stack([name_vector(n) for n in self.names])
        return np.concatenate([names, self.structure()], axis=1)

    def structure(self) -> Floats:
        """[A, STRUCTURE_DIM]: share of all calls, of starts, of ends; shares of its own calls that repeat, end, start; log degrees."""
        agents = len(self.names)
        inner = self.counts[:, :agents]
        calls = np.maximum(1, self.counts.sum(1))
        columns = [
            calls / calls.sum(), self.starts / max(1, self.starts.sum()), self.counts[:, agents] / max(1, self.counts[:, agents].sum()),
            np.diag(inner) / calls, self.counts[:, agents] / calls, self.starts / calls,
            np.log1p((inner > 0).sum(1)) / 4, np.log1p((inner > 0).sum(0)) / 4,
        ]
        return np.stack(columns, axis=1).astype(np.float32)

    def edges(self) -> Ints:
        """[2, E] of (from, to), self-loops left out, each COPIES * probability times."""
        agents = len(self.names)
        inner = self.counts[:, :agents] * (1 - np.eye(agents, dtype=np.int64))
        copies = np.ceil(COPIES * inner / np.maximum(1, inner.sum(1, keepdims=True))).astype(np.int64)
        source, target = np.nonzero(copies)
        return np.repeat(np.stack([source, target]), copies[source, target], axis=1)


def new_agent(name: str) -> Floats:
    """[NODE_DIM] of an agent the graph does not know: its name, and no structure."""
    return np.concatenate([name_vector(name), np.zeros(STRUCTURE_DIM, np.float32)]).reshape(NODE_DIM)


def estimate(runs: Iterable[Sequence[int]], names: Sequence[str]) -> CallGraph:
    """The graph of runs of agent ids, which are places in `names`."""
    agents = len(names)
    counts = np.zeros((agents, agents + 1), np.int64)
    starts = np.zeros(agents, np.int64)
    for run in runs:
        path = np.asarray(run, np.int64)
        starts[path[0]] += 1
        np.add.at(counts, (path, np.append(path[1:], agents)), 1)
    return CallGraph(tuple(names), counts, starts)
