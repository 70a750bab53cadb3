"""What an eviction policy is: a plan per prediction, a score per history, and an order as sortable keys. The least key goes first."""

from collections.abc import Iterable
from typing import ClassVar

from pbkv.predictor.base import Prediction
from pbkv.record import SCORE_ONE, Access, NodeRecord
from pbkv.workflow import Workflow

Key = tuple[float, ...]


class Policy:
    """The base scores as the paper does (Eq. 1 and 2), whether or not its order uses it: prefetch, events and screens do."""

    name: ClassVar[str]
    meaning: ClassVar[str]
    #: The order depends on scores.
    by_score: ClassVar[bool] = False
    #: The order depends on the knobs gamma and k.
    discounts: ClassVar[bool] = False
    #: Scores depend on what calls read, so they are made anew when a call's path is known.
    structural: ClassVar[bool] = False
    #: Keeps the paths of queued calls, so they must be known.
    uses_holds: ClassVar[bool] = False
    #: Wants to be told of accesses, splits and removals.
    follows: ClassVar[bool] = False

    def plan(self, workflow: Workflow, gamma: float, k: int) -> object:
        """What `score` needs of the workflow's new prediction; kept as `workflow.plan`."""
        return reuse_vector(workflow.prediction, gamma, k), next_vector(workflow.prediction)

    def score(self, workflow: Workflow, access: Access) -> tuple[int, int]:
        """What the workflow adds to score and value of the nodes with this history, in units of 1/SCORE_ONE."""
        if workflow.plan is None:
            return 0, 0
        reuse, following = workflow.plan  # type: ignore[misc]
        return dot(access.agents, reuse), dot(access.agents, following)  # pyright: ignore[reportUnknownArgumentType]

    def key(self, record: NodeRecord) -> Key:
        """Place in the order of the device tier."""
        raise NotImplementedError

    def level(self, record: NodeRecord) -> Key:
        """The place without what tells equals apart."""
        return self.key(record)[:-1]

    def is_dead(self, record: NodeRecord) -> bool:
        """Nobody is expected to read it again: its room may be given to a prefetch."""
        return record.retired

    def touched(self, record: NodeRecord, agent: int) -> None:
        """`agent` accessed the node; only when `follows`."""

    def split(self, prefix: NodeRecord, suffix: NodeRecord) -> None:
        """`prefix` is new above `suffix`; only when `follows`."""

    def forget(self, record: NodeRecord) -> None:
        """The node left the tree; only when `follows`."""

    def ended(self, workflow: Workflow) -> None:
        """The workflow retired."""


def reuse_vector(prediction: Prediction, gamma: float, k: int) -> dict[int, int]:
    """U_w[a] = sum_{k=1..K} gamma^(k-1) s_w^(k) P_w^(k)[a] by agent id, in units of 1/SCORE_ONE; Score(c) = sum_w A_w(c) . U_w (Eq. 2 of
    arXiv 2605.06472).
    """
    if not prediction.visits or k < 1:
        return {}
    total = dict(prediction.visits[0])
    weight = 1.0
    for step in prediction.visits[1:k]:
        weight *= gamma
        for agent, p in step.items():
            total[agent] = total.get(agent, 0.0) + weight * p
    return {agent: round(u * SCORE_ONE) for agent, u in total.items()}


def next_vector(prediction: Prediction) -> dict[int, int]:
    """P_w^(1): agent id -> probability of being called next, in units of 1/SCORE_ONE (Eq. 1)."""
    return {agent: round(p * SCORE_ONE) for agent, p in prediction.visits[0].items()} if prediction.visits else {}


def dot(agents: Iterable[int], vector: dict[int, int]) -> int:
    """A_w(c) . U_w for a 0/1 vector given as the set of its agents."""
    total = 0
    for agent in agents:
        total += vector.get(agent, 0)
    return total
