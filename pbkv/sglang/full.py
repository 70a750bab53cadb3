"""SGLang's Full component with victims from the persistent queues instead of a heap built anew at each eviction."""

from typing import TYPE_CHECKING, Any

from sglang.srt.mem_cache.unified_cache.components import FullComponent

if TYPE_CHECKING:
    from pbkv.sglang.runtime import Runtime


class PbkvFull(FullComponent):
    """Same contract as FullComponent: leaves only, whole nodes, a parent once its last resident child has gone."""

    runtime: "Runtime"

    def redistribute_on_node_split(self, new_parent: Any, child: Any) -> None:
        super().redistribute_on_node_split(new_parent, child)
        self.runtime.guard.run(self.runtime.node_split, new_parent, child)

    def _evict_device_start(self, request_cnt: int) -> None:
        self._quota = request_cnt
        self._upstream = False

    def _evict_device_next_node(self, tracker: Any, device_frees: Any, host_frees: Any, cache_actions: Any) -> int | None:
        guard = self.runtime.guard
        if tracker[self.component_type] >= self._quota:
            return None
        if not guard.fault:
            victim = guard.run(self.runtime.next_device_victim)
            if not guard.fault:
                return None if victim is None else victim.node_id
        if not self._upstream:
            # Ours failed, before this walk or in it: what is left of the walk is SGLang's.
            self._upstream = True
            super()._evict_device_start(self._quota)
        return super()._evict_device_next_node(tracker, device_frees, host_frees, cache_actions)

    def _evict_device_end(self) -> None:
        super()._evict_device_end()
        self.runtime.guard.run(self.runtime.end_device_walk)

    def drive_host_eviction(self, num_tokens: int, tracker: Any, device_frees: Any, host_frees: Any, cache_actions: Any) -> None:
        guard = self.runtime.guard
        while not guard.fault and tracker[self.component_type] < num_tokens:
            victim = guard.run(self.runtime.next_host_victim)
            if victim is not None:
                core: Any = self.tree_core
                core._evict_host_leaf(victim.node, tracker, device_frees, host_frees, cache_actions=cache_actions)
            elif not guard.fault:
                return
        if guard.fault:
            super().drive_host_eviction(num_tokens, tracker, device_frees, host_frees, cache_actions)
