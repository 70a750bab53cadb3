"""A live workflow: the path of agents it has called, the nodes its calls touched, and what is predicted to come."""

from collections.abc import Hashable

from pbkv.predictor.base import Prediction
from pbkv.record import NodeRecord


class Workflow(Hashable):
    """State of one workflow between its first call and its retirement. Identity, not name, is its hash: a name may come back."""

    __slots__ = (
        "name", "name_id", "path", "records", "prediction", "reuse", "next", "running", "ended", "last_call", "calls",
    )

    def __init__(self, name: str, name_id: int, now: float) -> None:
        self.name = name
        self.name_id = name_id
        self.path: list[int] = []
        self.records: dict[NodeRecord, None] = {}
        self.prediction = Prediction()
        self.reuse: dict[int, int] = {}
        self.next: dict[int, int] = {}
        self.running = 0
        self.ended: str | None = None  # reason of the end, once it is known
        self.last_call = now
        self.calls = 0

    __hash__ = object.__hash__

    @property
    def step(self) -> int:
        """Position of the newest call, from 0."""
        return self.calls - 1
