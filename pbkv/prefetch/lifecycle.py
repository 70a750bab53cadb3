"""The life of each prefetch: decided, completed, then used, evicted unused, or late. Shared by both engines."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pbkv.prefetch.planner import Decision, Planner, Room
from pbkv.prefetch.window import WindowTracker
from pbkv.record import NodeRecord

if TYPE_CHECKING:
    from pbkv.manager import CacheManager


@dataclass
class _Load:
    number: int
    record: NodeRecord
    tokens: int
    bytes: int


class Prefetcher:
    """Decides through the planner and follows what was issued. The engine calls it and starts the loads."""

    def __init__(self, manager: "CacheManager") -> None:
        self._manager = manager
        self._planner = Planner(manager.bytes_per_token, self)
        self.queue = self._planner.queue
        self.windows = WindowTracker()
        self._flying: dict[int, _Load] = {}  # by the node a load is anchored on
        self._resident: dict[int, _Load] = {}  # completed, not yet read, by prefetch number
        self._number = 0
        self._last_skip = ""

    # ---- a pure-decode step --------------------------------------------------------------------------------------------

    def decide(self, room: Room) -> bool:
        """With an idle link: decide and queue the loads of this step. True when the engine has something to start."""
        knobs = self._manager.knobs
        budget, aggressive = int(knobs.number("prefetch_budget")), knobs["prefetch"] == "aggressive"
        decisions = self._planner.plan(room, budget, self._manager.step, aggressive=aggressive)
        for decision in decisions:
            if decision.result == "issued":
                self._issued(decision)
            else:
                self._skipped(decision.result, decision)
        return any(d.result == "issued" for d in decisions)

    def link_busy(self) -> None:
        """The link has copies in flight, so nothing is decided in this step."""
        if self.queue.peek() is not None:
            self._skipped("skip_busy_link", None)

    def window(self, now_ns: int, idle: bool, link_bytes_per_s: float) -> None:
        """Once per scheduler step, with the engine's clock: keep the idle windows of the link."""
        window = self.windows.step(now_ns, idle)
        if window and self._manager.telemetry:
            capacity = int(link_bytes_per_s * window.length_ns / 1e9)
            self._manager.telemetry.window(window.start_ns, window.length_ns / 1e3, capacity, window.h2d_bytes, window.d2h_bytes)

    def _issued(self, decision: Decision) -> None:
        self._number += 1
        load = _Load(self._number, decision.record, decision.tokens, decision.bytes)
        self._flying[decision.record.node_id] = load
        decision.record.prefetch_id = load.number
        self._last_skip = ""
        self._manager.counts["prefetches_issued"] += 1
        self.windows.moved(h2d=load.bytes)
        self._write("decision", "issued", load)

    def _skipped(self, result: str, decision: Decision | None) -> None:
        # A reason is written when it changes, not once per decode step.
        if result == self._last_skip:
            return
        self._last_skip = result
        if self._manager.telemetry:
            record, tokens, size = (decision.record, decision.tokens, decision.bytes) if decision else (None, 0, 0)
            self._manager.telemetry.prefetch(0, "decision", result, record, tokens, size)

    def _write(self, phase: str, result: str, load: _Load) -> None:
        if phase == "outcome":
            self._manager.counts[f"prefetches_{result}"] += 1
        if self._manager.telemetry:
            self._manager.telemetry.prefetch(load.number, phase, result, load.record, load.tokens, load.bytes)

    # ---- what the planner asks (pbkv.prefetch.planner.Judge) --------------------------------------------------------------

    def would_stay(self, record: NodeRecord) -> bool:
        """Without scores the order says nothing about use to come, so only scored policies are asked."""
        policy, weakest = self._manager.policy, self._manager.device.peek()
        return not policy.by_score or weakest is None or policy.is_dead(weakest) or policy.key(record) > policy.key(weakest)

    def reclaim(self, room: Room, tokens: int, record: NodeRecord, *, aggressive: bool) -> int:
        """Dead room first; live cache only in aggressive mode, and only what is less likely to be read next than `record`."""
        manager = self._manager
        is_dead = manager.policy.is_dead
        manager.only = (lambda victim: is_dead(victim) or victim.value < record.value) if aggressive else is_dead
        try:
            return room.evict(tokens)
        finally:
            manager.only = None

    # ---- what becomes of it ---------------------------------------------------------------------------------------------

    def flying(self, node_id: int) -> bool:
        """A prefetch anchored on this node has not completed."""
        return node_id in self._flying

    def reap(self, ongoing: Collection[int]) -> None:
        """Loads no longer among `ongoing` (node ids) are complete."""
        if self._flying:
            for anchor in [a for a in self._flying if a not in ongoing]:
                self._completed(self._flying.pop(anchor))

    def _completed(self, load: _Load) -> None:
        self._write("completion", "completed", load)
        if load.record.prefetch_id == load.number:
            self._resident[load.number] = load

    def used(self, record: NodeRecord) -> None:
        """A call read the node."""
        if not record.prefetch_id:
            return
        if record.node_id in self._flying:
            self._write("outcome", "late", self._flying[record.node_id])
        elif (load := self._resident.pop(record.prefetch_id, None)) is not None:
            self._write("outcome", "used", load)
        record.prefetch_id = 0

    def evicted(self, record: NodeRecord) -> None:
        """The node leaves the device, or the tree."""
        if record.prefetch_id and (load := self._resident.pop(record.prefetch_id, None)) is not None:
            self._write("outcome", "evicted_unused", load)
        record.prefetch_id = 0

    def reset(self) -> None:
        """The tree was flushed: nothing is there to be loaded or read any more."""
        for load in self._resident.values():
            self._write("outcome", "evicted_unused", load)
        self.queue.clear()
        self._flying.clear()
        self._resident.clear()
        self._last_skip = ""
