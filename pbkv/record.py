"""What policies know of one tree node. Both engines' trees carry one NodeRecord per node; policies never see a tree."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pbkv.workflow import Workflow

#: Scores are integers in units of 2^-40: adding and taking away contributions is exact, so the order never drifts from what a
#: recomputation would give, and is the same on every rank.
SCORE_ONE = 1 << 40


class TreeNode(Protocol):
    """The one thing a record reads from its node: a logical clock that only grows."""

    last_access_time: float


class Access:
    """Which agents of one live workflow have accessed a node (A_w(c)), and what that adds to the node's score and value."""

    __slots__ = ("agents", "score", "value")

    def __init__(self, agents: set[int], score: int = 0, value: int = 0) -> None:
        self.agents = agents
        self.score = score
        self.value = value


class NodeRecord:
    """Reuse score (Eq. 2) and value (Eq. 1) of one node, kept incrementally, in units of 1/SCORE_ONE.

    `live` holds the live workflows that touched the node. A node is retired when workflows touched it, all of them have ended, and no
    unattributed call (which has no end) touched it.
    """

    __slots__ = (
        "node", "node_id", "tokens", "live", "score", "value", "touched", "anonymous", "hits", "created_ns", "access_ns",
        "last_workflow", "page", "evicted_step", "prefetch_id",
    )

    def __init__(self, node: TreeNode, node_id: int, tokens: int, now_ns: int = 0) -> None:
        self.node = node
        self.node_id = node_id
        self.tokens = tokens
        self.live: dict[Workflow, Access] = {}
        self.score = 0
        self.value = 0
        self.touched = False
        self.anonymous = False
        self.hits = 0
        self.created_ns = now_ns
        self.access_ns = now_ns
        self.last_workflow = 0
        self.page = 0
        self.evicted_step = -(1 << 60)
        self.prefetch_id = 0

    @property
    def last_access(self) -> float:
        """Logical clock of the last access."""
        return self.node.last_access_time

    @property
    def retired(self) -> bool:
        """True when only ended workflows touched the node: it goes first."""
        return self.touched and not self.live and not self.anonymous
