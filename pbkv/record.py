"""What policies know of one tree node. Both engines' trees carry one NodeRecord per node; policies never see a tree."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pbkv.workflow import Workflow

#: Scores are integers in units of 2^-40: adding and taking away contributions is exact, so the order never drifts from what a
#: recomputation would give, and is the same on every rank.
SCORE_ONE = 1 << 40

#: What a node was when a workflow first touched it: there already, or written by its call as prompt or as output.
SHARED, PROMPT, OUTPUT = 0, 1, 2


class TreeNode(Protocol):
    """The one thing a record reads from its node: a logical clock that only grows."""

    last_access_time: float


class Access:
    """The common history of some nodes in one live workflow, and what it adds to their scores.

    `agents` maps the agents that have accessed the nodes (A_w(c) of the paper) to the call that did so last. Nodes with the same history
    share one Access, so a new prediction costs as much as there are histories, not nodes.
    """

    __slots__ = ("agents", "creator", "first", "kind", "last", "records", "score", "value")

    def __init__(self, creator: int, kind: int, call: int) -> None:
        self.creator, self.kind, self.first, self.last = creator, kind, call, call
        self.agents: dict[int, int] = {creator: call}
        self.records: dict[NodeRecord, None] = {}
        self.score = 0
        self.value = 0

    def read_by(self, agent: int, call: int) -> "Access":
        """The history after one more access, without nodes or score yet."""
        after = Access(self.creator, self.kind, self.first)
        after.agents = {**self.agents, agent: call}
        after.last = max(self.last, call)  # calls of one workflow may overlap
        return after


class NodeRecord:
    """Score and value (Eq. 1) of one node, kept incrementally, in units of 1/SCORE_ONE. What `score` measures is the policy's affair.

    `live` holds the live workflows that touched the node. A node is retired when workflows touched it, all of them have ended, and no
    unattributed call (which has no end) touched it. `holds` are the queued calls that will read it, by arrival.
    """

    __slots__ = (
        "node", "node_id", "tokens", "live", "score", "value", "touched", "shared", "anonymous", "holds", "hits", "created_ns", "access_ns",
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
        self.shared = False  # more than one workflow has touched it
        self.anonymous = False
        self.holds: dict[int, None] | None = None
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
