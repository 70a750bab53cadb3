"""Conservative prefetch: what to load back in one pure-decode step, greedily by expected use at the next step (Eq. 1).

Only into free and retired room; never what was evicted a moment ago; never more than the budget of the step; always leaving
headroom for the growth of running calls. Pure logic over records: the engine says what is possible and does the loading.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

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

    def reclaim_retired(self, tokens: int) -> int:
        """Evict up to `tokens` of retired, unlocked device cache, nothing else; returns what was freed."""
        ...

    def load(self, record: NodeRecord) -> bool:
        """Start the load; False when the engine refused it."""
        ...


@dataclass(frozen=True)
class Decision:
    """One decision of a step: `result` is a value of prefetch.result in the schema."""

    result: str
    record: NodeRecord
    tokens: int
    bytes: int


class ConservativePrefetch:
    """Keeps the host-resident nodes worth loading in a lazy queue, highest value first."""

    def __init__(self, bytes_per_token: int, depth_of: Callable[[NodeRecord], int]) -> None:
        self._bytes_per_token = bytes_per_token
        # Equal value: the shallower node first, since a node is loaded together with its evicted ancestors anyway.
        self.queue: LazyQueue[NodeRecord] = LazyQueue(lambda r: (-r.value, depth_of(r)), lambda r: r.node_id)

    def plan(self, room: Room, budget_bytes: int, step: int) -> list[Decision]:
        """Decide and start the loads of this step; ends with at most one skip that says why no more was loaded."""
        issued: list[Decision] = []
        skip: list[Decision] = []
        budget = budget_bytes // self._bytes_per_token
        cooling: list[NodeRecord] = []
        for _ in range(MAX_LOOKS):
            record = self.queue.peek()
            if record is None or len(issued) >= MAX_PER_STEP:
                break
            tokens = room.load_tokens(record)
            result = self._decide(record, tokens, room, budget, step)
            decision = Decision(result, record, tokens, tokens * self._bytes_per_token)
            if result == "issued":
                budget -= tokens
                issued.append(decision)
            elif result != "gone":
                skip = [decision]
            if result == "skip_just_evicted":
                cooling.append(record)
            elif result not in ("issued", "gone"):
                break
            self.queue.discard(record)
        for record in cooling:
            self.queue.add(record)
        return issued + skip

    def _decide(self, record: NodeRecord, tokens: int, room: Room, budget: int, step: int) -> str:
        if tokens <= 0:
            return "gone"
        if record.value < MIN_VALUE:
            return "skip_low_value"
        if step - record.evicted_step < COOLDOWN_STEPS:
            return "skip_just_evicted"
        if tokens > budget:
            return "skip_budget"
        short = tokens - room.free_tokens()
        if short > 0 and room.reclaim_retired(short) < short:
            return "skip_no_space"
        return "issued" if room.load(record) else "skip_no_space"
