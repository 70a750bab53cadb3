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
        self.runtime.node_split(new_parent, child)

    def _evict_device_start(self, request_cnt: int) -> None:
        self._quota = request_cnt

    def _evict_device_next_node(self, tracker: Any, device_frees: Any, host_frees: Any, cache_actions: Any) -> int | None:
        if tracker[self.component_type] >= self._quota:
            return None
        victim = self.runtime.next_device_victim()
        return None if victim is None else victim.node_id

    def _evict_device_end(self) -> None:
        self.runtime.end_device_walk()

    def drive_host_eviction(self, num_tokens: int, tracker: Any, device_frees: Any, host_frees: Any, cache_actions: Any) -> None:
        while tracker[self.component_type] < num_tokens:
            victim = self.runtime.next_host_victim()
            if victim is None:
                return
            core: Any = self.tree_core
            core._evict_host_leaf(victim.node, tracker, device_frees, host_frees, cache_actions=cache_actions)
