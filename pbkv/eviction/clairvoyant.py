"""A bound for experiments: evict what will be read last, by someone who knows the future. Blind to sizes, so not a strict bound."""

from collections.abc import Callable
from typing import Protocol

from pbkv.eviction.base import Key, Policy
from pbkv.record import NodeRecord
from pbkv.workflow import Workflow


class Future(Protocol):
    """What an experiment knows of the calls to come."""

    def next_use(self, workflow: Workflow, record: NodeRecord) -> float | None:
        """Engine time, in s, at which a call of the workflow that has not begun yet is expected to read the node; None = never."""
        ...


class Clairvoyant(Policy):
    """Furthest next read first; queued calls' paths last, as in `first_use`. `rekeyed` is told of nodes whose place became earlier."""

    name = "clairvoyant"
    meaning = "for experiments: furthest next read first"
    by_score = True
    uses_holds = True
    follows = True

    def __init__(self, rekeyed: Callable[[NodeRecord], None], future: Future) -> None:
        self._rekeyed, self._future = rekeyed, future

    def plan(self, workflow: Workflow, gamma: float, k: int) -> object:
        # The clock of the workflow has moved: every estimate for its nodes may be later now.
        for record in workflow.records:
            self._rekeyed(record)
        return super().plan(workflow, gamma, k)

    def touched(self, record: NodeRecord, agent: int) -> None:
        self._rekeyed(record)

    def key(self, record: NodeRecord) -> Key:
        if record.holds:
            return (2.0, -next(iter(record.holds)), record.node.last_access_time)
        uses = [use for workflow in record.live if (use := self._future.next_use(workflow, record)) is not None]
        if not uses:
            return (1.0 if record.anonymous else 0.0, 0.0, record.node.last_access_time)
        return (1.0, -min(uses), record.node.last_access_time)
