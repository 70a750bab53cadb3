"""The radix cache behind `--radix-cache-backend pbkv`: SGLang's unified cache on the Python tree core, steered by PBKV."""

from typing import Any

from sglang.srt.mem_cache.registry import create_unified_radix_cache
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from pbkv.config import ServerConfig
from pbkv.sglang.full import PbkvFull
from pbkv.sglang.runtime import Runtime


class PbkvCache(UnifiedRadixCache):
    """Overrides see a call's path after SGLang has inserted it, and make every batch wait for loads in flight."""

    runtime: Runtime

    def checkpoint_into_tree(self, req: Any, *, up_to: int, **kwargs: Any) -> None:
        super().checkpoint_into_tree(req, up_to=up_to, **kwargs)
        self.runtime.guard.run(self.runtime.calls.checkpoint, req)

    def on_release(self, req: Any, *, checkpointed: bool) -> None:
        super().on_release(req, checkpointed=checkpointed)
        if req.finished():
            self.runtime.guard.run(self.runtime.calls.finish, req)

    def ready_to_load_host_cache(self) -> int:
        """A prefetched node looks resident at once, so a prefill that reads it must wait for the load although no request asked for
        one. Loads run in one stream in order: waiting for the newest waits for all. Without this a batch reads KV that is not there yet.
        """
        index = super().ready_to_load_host_cache()
        controller = self.cache_controller
        if index < 0 and controller is not None and controller.ack_load_queue:
            return controller.layer_done_counter.producer_index
        return index

    def loading_check(self, finish_count: int | None = None) -> None:
        super().loading_check(finish_count)
        self.runtime.guard.run(self.runtime.prefetch.reap, self.ongoing_load_back)

    def reset(self) -> None:
        super().reset()
        if "runtime" in self.__dict__:  # SGLang's constructor resets once before there is one
            self.runtime.attach_tree()

    def _execute_kv_backup(self, node_id: Any, device_value: Any, comp_xfers: Any, sidecar_xfers: Any) -> Any:
        indices = super()._execute_kv_backup(node_id, device_value, comp_xfers, sidecar_xfers)
        if indices is not None:
            self.runtime.guard.run(self.runtime.backed_up, len(indices))
        return indices


def make_cache(ctx: Any, config: ServerConfig, replica: int = 0) -> Any:
    """Factory for SGLang's registry. The Rust core compiles its policies in, so the Python core it is. `replica` counts data-parallel
    replicas from 0.
    """
    ctx.params.tree_core_backend = "python"
    ctx.params.component_registry_override = {ComponentType.FULL: PbkvFull}
    cache = create_unified_radix_cache(ctx, cache_class=PbkvCache)
    Runtime(cache, config, ctx, replica)
    return cache
