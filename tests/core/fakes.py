"""Stand-ins for what lives outside the policy core: tree nodes with a clock, a scripted predictor, a listener that keeps notes."""

import itertools
import random
from collections.abc import Iterable, Sequence

from pbkv.knobs import K_MAX
from pbkv.predictor.base import Moment, Prediction
from pbkv.record import NodeRecord
from pbkv.workflow import Workflow

_ids = itertools.count(1)


class Node:
    """A tree node: a logical clock and a parent."""

    def __init__(self, last_access_time: float = 0.0, parent: "Node | None" = None) -> None:
        self.last_access_time = last_access_time
        self.parent = parent


def record(node: Node | None = None, tokens: int = 16) -> NodeRecord:
    """A record with an id of its own."""
    return NodeRecord(node or Node(), next(_ids), tokens)


def workflow(name: str, number: int = 1) -> Workflow:
    """A live workflow outside any state."""
    return Workflow(name, number, 0.0)


class Scripted:
    """Predicts whatever a seeded generator says, END included, and remembers what it said and saw."""

    version = 7
    at_reply = False

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self.seen: list[tuple[int | None, int]] = []
        self.last = Prediction()

    def observe(self, path: Sequence[int], agent: int) -> None:
        self.seen.append((path[-1] if path else None, agent))

    def predict(self, moment: Moment) -> Prediction:
        visits, ends, left = [], [], 1.0
        for _ in range(self._rng.choice((0, K_MAX))):
            weights = [self._rng.random() ** 3 for _ in range(5)]
            shares = [left * w / sum(weights) for w in weights]
            visits.append({agent: p for agent, p in enumerate(shares[:4]) if p > 0.02})
            ends.append(shares[4])
            left -= shares[4]
        self.last = Prediction(tuple(visits), tuple(ends))
        return self.last


class Notes:
    """A listener that only keeps notes."""

    def __init__(self) -> None:
        self.falls: list[NodeRecord] = []
        self.changes: list[NodeRecord] = []
        self.starts: list[Workflow] = []
        self.predictions: list[Workflow] = []
        self.retirements: list[tuple[Workflow, str, list[NodeRecord]]] = []

    def rescored(self, records: Iterable[NodeRecord], fell: bool) -> None:
        self.changes += records
        if fell:
            self.falls += records

    def rekeyed(self, record: NodeRecord) -> None:
        self.falls.append(record)

    def predicted(self, workflow: Workflow, version: int, took_ns: int) -> None:
        self.predictions.append(workflow)

    def started(self, workflow: Workflow) -> None:
        self.starts.append(workflow)

    def retired(self, workflow: Workflow, reason: str, records: list[NodeRecord]) -> None:
        self.retirements.append((workflow, reason, records))
