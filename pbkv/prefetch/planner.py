"""What to load back in one pure-decode step, greedily by expected use at the next step (Eq. 1). Pure logic over records.

Conservative: only into free and dead room. Aggressive: also in place of live cache that is worth less. Both: never what was evicted a
moment ago, never what would be the next victim, never more than the budget of the step, always leaving headroom for the growth of
running calls. The engine says what is possible and does the loading.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from pbkv.eviction.queue import LazyQueue
from pbkv.record import SCORE_ONE, NodeRecord

#: Expected use below which loading is not worth the link.
MIN_VALUE = SCORE_ONE // 50
#: Scheduler steps for which an evicted node is not loaded again: without it, decode growth and prefetch would chase each other.
COOLDOWN_STEPS = 64
#: Prefetches decided in one step, and candidates looked at for them.
MAX_PER_STEP = 4
MAX_LOOKS = 16


class Room(Protocol):
    """What an engine must answer and do. Tokens and bytes; every answer must be equal on all ranks."""

    def load_tokens(self, record: NodeRecord) -> int:
        """Tokens a load of this node would move (with its evicted ancestors); 0 = nothing to load (any more)."""
        ...

    def free_tokens(self) -> int:
        """Unallocated device tokens beyond the headroom kept for running calls; may be negative."""
        ...

    def evict(self, tokens: int) -> int:
        """Evict up to `tokens` of unlocked device cache in the order of the policy; returns what was freed."""
        ...

    def load(self, record: NodeRecord) -> bool:
        """Start the load; False when the engine refused it."""
        ...


class Judge(Protocol):
    """What the policy has to say about loads."""

    def would_stay(self, record: NodeRecord) -> bool:
        """Once loaded, others would be evicted before it."""
        ...

    def reclaim(self, room: Room, tokens: int, record: NodeRecord, *, aggressive: bool) -> int:
        """Make room for `record` at the expense of what the mode allows; returns what was freed."""
        ...


@dataclass(frozen=True)
class Decision:
    """One decision of a step: `result` is a value of prefetch.result in the schema."""

    result: str
    record: NodeRecord
    tokens: int
    bytes: int


class Planner:
    """Keeps the host-resident nodes worth loading in a lazy queue, highest value first."""

    def __init__(self, bytes_per_token: int, judge: Judge) -> None:
        self._bytes_per_token, self._judge = bytes_per_token, judge
        # Equal value: the shallower node first, since a node is loaded together with its evicted ancestors anyway.
        self.queue: LazyQueue[NodeRecord] = LazyQueue(lambda r: (-r.value, depth_of(r)), lambda r: r.node_id)

    def plan(self, room: Room, budget_bytes: int, step: int, *, aggressive: bool = False) -> list[Decision]:
        """Decide and start the loads of this step; ends with at most one skip that says why no more was loaded."""
        issued: list[Decision] = []
        skip: list[Decision] = []
        budget = budget_bytes // self._bytes_per_token
        later: list[NodeRecord] = []
        for _ in range(MAX_LOOKS):
            record = self.queue.peek()
            if record is None or len(issued) >= MAX_PER_STEP:
                break
            tokens = room.load_tokens(record)
            result = self._decide(record, tokens, room, budget, step, aggressive)
            decision = Decision(result, record, tokens, tokens * self._bytes_per_token)
            if result == "issued":
                budget -= tokens
                issued.append(decision)
            elif result != "gone":
                skip = [decision]
            if result in ("skip_just_evicted", "skip_low_value") and record.value >= MIN_VALUE:
                later.append(record)
            elif result not in ("issued", "gone"):
                break
            self.queue.discard(record)
        for record in later:
            self.queue.add(record)
        return issued + skip

    def _decide(self, record: NodeRecord, tokens: int, room: Room, budget: int, step: int, aggressive: bool) -> str:
        if tokens <= 0:
            return "gone"
        if record.value < MIN_VALUE or not self._judge.would_stay(record):
            return "skip_low_value"
        if step - record.evicted_step < COOLDOWN_STEPS:
            return "skip_just_evicted"
        if tokens > budget:
            return "skip_budget"
        short = tokens - room.free_tokens()
        if short > 0 and self._judge.reclaim(room, short, record, aggressive=aggressive) < short:
            return "skip_no_space"
        return "issued" if room.load(record) else "skip_no_space"


def depth_of(record: NodeRecord) -> int:
    """Nodes above this one."""
    node: Any = record.node
    depth, node = 0, node.parent
    while node is not None:
        depth, node = depth + 1, node.parent
    return depth
