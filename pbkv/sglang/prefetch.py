"""Conservative prefetch on SGLang: loads without a request, in pure-decode steps with an idle link only."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pbkv.prefetch.conservative import ConservativePrefetch, Decision
from pbkv.prefetch.window import WindowTracker
from pbkv.record import NodeRecord
from pbkv.sglang.tree import depth_of, host_tokens

if TYPE_CHECKING:
    from pbkv.sglang.runtime import Runtime

#: Decode tokens a running call is given room for before prefetch may take the rest.
GROWTH_TOKENS = 64


@dataclass
class _Load:
    number: int
    record: NodeRecord
    tokens: int
    bytes: int


class Prefetcher:
    """The `Room` of the planner, and the life of each prefetch: decided, completed, then used, evicted unused, or late."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime, self._cache = runtime, runtime.cache
        self._planner = ConservativePrefetch(runtime.bytes_per_token, depth_of)
        self.queue = self._planner.queue
        self.windows = WindowTracker()
        self._flying: dict[int, _Load] = {}  # by the node a load is anchored on
        self._resident: dict[int, _Load] = {}  # completed, not yet read, by prefetch number
        self._number = 0
        self._headroom = 0
        self._last_skip = ""

    # ---- a scheduler step ----------------------------------------------------------------------------------------------

    def step(self, scheduler: Any, batch: Any) -> None:
        """Prefetch if this step is pure decode and the link is idle; keep the window."""
        decode = batch is not None and batch.forward_mode.is_decode() and not scheduler.waiting_queue
        controller = self._cache.cache_controller
        idle = decode and controller is not None and self._only_ours(controller)
        window = self.windows.step(time.monotonic_ns(), idle)
        telemetry = self._runtime.telemetry
        if window and telemetry:
            capacity = int(self._runtime.config.link_bytes_per_s * window.length_ns / 1e9)
            telemetry.window(window.start_ns, window.length_ns / 1e3, capacity, window.h2d_bytes, window.d2h_bytes)
        if decode and controller is not None and self._runtime.knobs["prefetch"] == "conservative":
            self._prefetch(batch, controller)

    def _only_ours(self, controller: Any) -> bool:
        writing = controller.write_queue or controller.ack_write_queue
        demand = any(anchor not in self._flying for anchor in self._cache.ongoing_load_back)
        return not writing and not demand

    def _prefetch(self, batch: Any, controller: Any) -> None:
        if controller.write_queue or controller.ack_write_queue or controller.load_queue or controller.ack_load_queue:
            if self.queue.peek() is not None:
                self._skipped("skip_busy_link", None)
            return
        if not self._cache.has_free_load_back_slot():
            return
        self._headroom = sum(_growth(req, self._cache.page_size) for req in batch.reqs)
        budget = int(self._runtime.knobs.number("prefetch_budget"))
        decisions = self._planner.plan(self, budget, self._runtime.step)
        if any(d.result == "issued" for d in decisions):
            controller.start_loading()
        for decision in decisions:
            if decision.result == "issued":
                self._issued(decision)
            else:
                self._skipped(decision.result, decision)

    def _issued(self, decision: Decision) -> None:
        self._number += 1
        load = _Load(self._number, decision.record, decision.tokens, decision.bytes)
        self._flying[decision.record.node_id] = load
        decision.record.prefetch_id = load.number
        self._last_skip = ""
        self._runtime.counts["prefetches_issued"] += 1
        self.windows.moved(h2d=load.bytes)
        self._write(load.number, "decision", "issued", load)

    def _skipped(self, result: str, decision: Decision | None) -> None:
        # A reason is written when it changes, not once per decode step.
        if result == self._last_skip:
            return
        self._last_skip = result
        if self._runtime.telemetry:
            record, tokens, size = (decision.record, decision.tokens, decision.bytes) if decision else (None, 0, 0)
            self._runtime.telemetry.prefetch(0, "decision", result, record, tokens, size)

    def _write(self, number: int, phase: str, result: str, load: _Load) -> None:
        if self._runtime.telemetry:
            self._runtime.telemetry.prefetch(number, phase, result, load.record, load.tokens, load.bytes)

    # ---- what the planner asks (pbkv.prefetch.conservative.Room) ---------------------------------------------------------

    def load_tokens(self, record: NodeRecord) -> int:
        """Tokens of the node and its evicted ancestors; 0 when it is resident, gone, or in flight."""
        node: Any = record.node
        if not record.live or not node.evicted or node.load_back_pending_id is not None:
            return 0
        tokens = 0
        while node.evicted:
            if not node.backuped:
                return 0
            tokens += host_tokens(node)
            node = node.parent
        return tokens if tokens >= self._cache.load_back_threshold else 0

    def free_tokens(self) -> int:
        """Unallocated device tokens less the headroom of running calls."""
        return int(self._cache.token_to_kv_pool_allocator.available_size()) - self._headroom

    def reclaim_retired(self, tokens: int) -> int:
        """Free retired room for a load."""
        return self._runtime.reclaim_retired(tokens)

    def load(self, record: NodeRecord) -> bool:
        """Queue the load; SGLang locks the path until its ack."""
        return bool(self._cache.load_back(record.node_id))

    def reset(self) -> None:
        """The tree was flushed: nothing is there to be loaded or read any more."""
        for load in self._resident.values():
            self._write(load.number, "outcome", "evicted_unused", load)
        self.queue.clear()
        self._flying.clear()
        self._resident.clear()
        self._last_skip = ""

    # ---- what becomes of it ---------------------------------------------------------------------------------------------

    def reap(self, ongoing: Any) -> None:
        """Loads whose ack SGLang has processed are complete."""
        for anchor in [a for a in self._flying if a not in ongoing]:
            load = self._flying.pop(anchor)
            self._write(load.number, "completion", "completed", load)
            if load.record.prefetch_id == load.number:
                self._resident[load.number] = load

    def used(self, record: NodeRecord) -> None:
        """A call read the node."""
        if not record.prefetch_id:
            return
        if record.node_id in self._flying:
            self._write(record.prefetch_id, "outcome", "late", self._flying[record.node_id])
        elif (load := self._resident.pop(record.prefetch_id, None)) is not None:
            self._write(load.number, "outcome", "used", load)
        record.prefetch_id = 0

    def evicted(self, record: NodeRecord) -> None:
        """The node leaves the device, or the tree."""
        if record.prefetch_id and (load := self._resident.pop(record.prefetch_id, None)) is not None:
            self._write(load.number, "outcome", "evicted_unused", load)
        record.prefetch_id = 0


def _growth(req: Any, page_size: int) -> int:
    remaining = max(0, req.sampling_params.max_new_tokens - len(req.output_ids))
    return min(remaining, GROWTH_TOKENS) + page_size
