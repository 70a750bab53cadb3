"""A live workflow: the path of agents it has called, the nodes its calls touched, and what is predicted to come."""

from collections.abc import Hashable

from pbkv.predictor.base import Prediction
from pbkv.record import Access, NodeRecord


class Workflow(Hashable):
    """State of one workflow between its first call and its retirement. Identity, not name, is its hash: a name may come back."""

    __slots__ = (
        "name", "name_id", "path", "last_call_of", "accesses", "seen", "prediction", "plan", "running", "ended", "last_call", "calls",
        "text",
    )

    def __init__(self, name: str, name_id: int, now: float) -> None:
        self.name = name
        self.name_id = name_id
        self.path: list[int] = []
        self.last_call_of: dict[int, int] = {}  # agent -> position of its newest call
        self.accesses: dict[Access, None] = {}
        self.seen = -1  # newest call whose path has been seen
        self.prediction = Prediction()
        self.plan: object = None  # what the policy made of the prediction
        self.running = 0
        self.ended: str | None = None  # reason of the end, once it is known
        self.last_call = now
        self.calls = 0
        self.text: object = None  # text signal of the newest output

    __hash__ = object.__hash__

    @property
    def step(self) -> int:
        """Position of the newest call, from 0."""
        return self.calls - 1

    @property
    def records(self) -> list[NodeRecord]:
        """Nodes its calls touched that are still in the tree."""
        return [record for access in self.accesses for record in access.records]
