"""Who is told of what happens to scores and workflows: whoever keeps queues and events around a state."""

from collections.abc import Iterable
from typing import Protocol

from pbkv.record import NodeRecord
from pbkv.workflow import Workflow


class Listener(Protocol):
    """Told of everything that concerns queues and events."""

    def rescored(self, records: Iterable[NodeRecord], fell: bool) -> None:
        """Score or value of these changed; `fell`: the score became smaller."""
        ...

    def rekeyed(self, record: NodeRecord) -> None:
        """The record's place in the order may have become earlier for another reason: retired, or a policy's own."""
        ...

    def predicted(self, workflow: Workflow, version: int, took_ns: int) -> None:
        """The workflow has a new prediction, made by the predictor of that version."""
        ...

    def started(self, workflow: Workflow) -> None: ...

    def retired(self, workflow: Workflow, reason: str, records: list[NodeRecord]) -> None:
        """`records` are those that became retired with it."""
        ...
