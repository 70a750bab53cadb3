"""Prefetch on SGLang: loads without a request, in pure-decode steps with an idle link only."""

import time
from typing import TYPE_CHECKING, Any

from pbkv.record import NodeRecord
from pbkv.sglang.tree import host_tokens

if TYPE_CHECKING:
    from pbkv.sglang.runtime import Runtime

#: Decode tokens a running call is given room for before prefetch may take the rest.
GROWTH_TOKENS = 64


class LoadBacks:
    """The `Room` of the planner on SGLang's cache."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime, self._cache = runtime, runtime.cache
        self._headroom = 0

    def step(self, scheduler: Any, batch: Any) -> None:
        """Prefetch if this step is pure decode and the link is idle; keep the window."""
        prefetch = self._runtime.prefetch
        decode = batch is not None and batch.forward_mode.is_decode() and not scheduler.waiting_queue
        controller = self._cache.cache_controller
        idle = decode and controller is not None and self._only_ours(controller)
        prefetch.window(time.monotonic_ns(), idle, self._runtime.config.link_bytes_per_s)
        if not decode or controller is None or self._runtime.knobs["prefetch"] == "off":
            return
        if controller.write_queue or controller.ack_write_queue or controller.load_queue or controller.ack_load_queue:
            prefetch.link_busy()
        elif self._cache.has_free_load_back_slot():
            self._headroom = sum(_growth(req, self._cache.page_size) for req in batch.reqs)
            if prefetch.decide(self):
                controller.start_loading()

    def _only_ours(self, controller: Any) -> bool:
        writing = controller.write_queue or controller.ack_write_queue
        demand = any(not self._runtime.prefetch.flying(anchor) for anchor in self._cache.ongoing_load_back)
        return not writing and not demand

    # ---- what the planner asks (pbkv.prefetch.planner.Room) ---------------------------------------------------------------

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

    def evict(self, tokens: int) -> int:
        """Evict what the manager admits."""
        return self._runtime.evict(tokens)

    def load(self, record: NodeRecord) -> bool:
        """Queue the load; SGLang locks the path until its ack. Making room for it may have taken it from the host."""
        return self.load_tokens(record) > 0 and bool(self._cache.load_back(record.node_id))


def _growth(req: Any, page_size: int) -> int:
    remaining = max(0, req.sampling_params.max_new_tokens - len(req.output_ids))
    return min(remaining, GROWTH_TOKENS) + page_size
