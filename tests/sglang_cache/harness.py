"""SGLang's own radix cache and host pool alone on CPU, with the plugin's cache or without it. Imports sglang: about ten seconds, once."""

import atexit
import os
from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

import torch
from pbkv_sglang_cpu import hicache
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.registry import create_unified_radix_cache
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

from pbkv.config import ServerConfig
from pbkv.events.writer import EventWriter
from pbkv.eviction.queue import LazyQueue
from pbkv.identity import CallIdentity
from pbkv.sglang.cache import make_cache
from pbkv.sglang.guard import GuardedTelemetry
from pbkv.sglang.tree import record_of
from tests.support.stream import Recorder

FULL = ComponentType.FULL
LAYERS = 2
os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
hicache.register()


def check_order(queue: Any) -> None:
    """A copy of the queue drains in the order of a full sort; the queue itself is not disturbed, so nothing is repaired by looking."""
    copy = LazyQueue(queue._key, queue._ident)
    copy._heap, copy._alive = list(queue._heap), dict(queue._alive)
    order: list[Any] = []
    while (record := copy.peek()) is not None:
        order.append(record)
        copy.discard(record)
    assert order == sorted(queue._alive.values(), key=lambda r: (queue._key(r), r.node_id)), "a fall of a key was not announced"


class Bench:
    """One cache with its pools. `plugin` None = SGLang's own; else a dict of knobs. `host` None = no host pool, else its ratio. `session`:
    as with --enable-session-radix-cache.
    """

    def __init__(
        self, *, plugin: dict[str, Any] | None = None, page: int = 1, size: int = 256, host: float | None = 2.0,
        write_policy: str = "write_through", core: str = "python", session: bool = False, observe: bool = False,
    ) -> None:
        self.page, self.size = page, size
        hierarchical: dict[str, Any] = {} if host is None else {
            "enable_hierarchical_cache": True, "hicache_ratio": host, "hicache_write_policy": write_policy, "hicache_io_backend": "direct",
            "hicache_mem_layout": "layer_first",
        }
        self.args = ServerArgs(model_path="dummy", page_size=page, device="cpu", **hierarchical)
        set_global_server_args_for_scheduler(self.args)
        self.pool = MHATokenToKVPool(
            size=size, page_size=page, dtype=torch.float32, head_num=1, head_dim=4, layer_num=LAYERS, device="cpu",
            enable_memory_saver=False,
        )
        self.allocator = self._allocator()
        self.params = CacheInitParams(
            disable=False, token_to_kv_pool_allocator=self.allocator, page_size=page, eviction_policy="lru", tree_core_backend=core,
            enable_session_radix_cache=session,
            req_to_token_pool=ReqToTokenPool(size=8, max_context_len=1024, device="cpu", enable_memory_saver=False),
        )
        self.ctx: Any = SimpleNamespace(
            server_args=self.args, params=self.params, is_hybrid_swa=False, is_hybrid_ssm=False, full_tokens_per_layer=None,
            enable_hierarchical_cache=host is not None, tp_rank=0, tp_size=1,
            tp_worker=SimpleNamespace(register_hicache_layer_transfer_counter=lambda counter: None),
        )
        self.cache: Any = (
            create_unified_radix_cache(self.ctx) if plugin is None else make_cache(self.ctx, ServerConfig(events="", knobs=plugin))
        )
        self.runtime: Any = self.cache.runtime if plugin is not None else None
        self.core: Any = self.cache.tree_core
        self.sink = Recorder()
        if observe:
            self._observe()

    def _allocator(self) -> Any:
        kind: Any = TokenToKVPoolAllocator if self.page == 1 else PagedTokenToKVPoolAllocator
        paged: dict[str, Any] = {} if self.page == 1 else {"page_size": self.page}
        return kind(size=self.size, dtype=torch.float32, device="cpu", kvcache=self.pool, need_sort=False, **paged)

    def _observe(self) -> None:
        runtime = self.runtime
        writer = EventWriter("test", self.sink, epoch=1)
        report = (writer, runtime.tree.tier_of, runtime.tree.parent_of, runtime.state.agent_names)
        runtime.observe_with(GuardedTelemetry(*report, failed=runtime._cannot_report))

    def close(self) -> None:
        """Give back what SGLang would keep until the process ends."""
        if self.cache.cache_controller is not None:
            atexit.unregister(self.cache.shutdown)
            self.cache.shutdown()

    # ---- what a scheduler does ---------------------------------------------------------------------------------------------

    def put(self, tokens: Sequence[int]) -> int | None:
        """Match, allocate (evicting as SGLang does), write KV that names the tokens, insert. Node id of the end; None = no room."""
        tokens = tokens[: len(tokens) // self.page * self.page]
        found = self.match(tokens)
        lock = self.cache.inc_lock_ref(found.last_device_node)
        need = len(tokens) - found.device_prefix_len
        short = need - self.allocator.available_size()
        if short > 0:
            self.cache.evict(EvictParams(num_tokens=short))
        fresh = self.allocator.alloc(need) if need else torch.empty(0, dtype=torch.int64)
        if fresh is None:
            self.cache.dec_lock_ref(found.last_device_node, lock.to_dec_params())
            return None
        self._write(fresh, tokens[found.device_prefix_len :])
        value = torch.cat([self.cache.path_device_indices(found.last_device_node), fresh])
        result = self.cache.insert(InsertParams(key=self.key(tokens), value=value, prev_prefix_len=found.device_prefix_len))
        self.cache.dec_lock_ref(found.last_device_node, lock.to_dec_params())
        return int(result.last_device_node)

    def _write(self, indices: Any, tokens: Sequence[int]) -> None:
        if len(tokens):
            for layer in range(LAYERS):
                self.pool.k_buffer[layer][indices] = torch.tensor(tokens, dtype=torch.float32)[:, None, None].expand(-1, 1, 4) + layer
                self.pool.v_buffer[layer][indices] = -torch.tensor(tokens, dtype=torch.float32)[:, None, None].expand(-1, 1, 4) - layer

    def key(self, tokens: Sequence[int]) -> Any:
        return RadixKey(array("q", tokens))

    def match(self, tokens: Sequence[int]) -> Any:
        return self.cache.match_prefix(MatchPrefixParams(key=self.key(tokens)))

    def evict(self, tokens: int) -> int:
        return int(self.cache.evict(EvictParams(num_tokens=tokens)).num_tokens_evicted)

    def settle(self) -> None:
        """Finish copies in both directions, as the scheduler's steps would."""
        if self.cache.cache_controller is not None:
            self.cache.ready_to_load_host_cache()
            for _ in range(3):
                self.cache.check_hicache_events()

    def flush(self) -> None:
        """What the scheduler does on /flush_cache."""
        self.cache.reset()
        self.params.req_to_token_pool.clear()
        self.allocator.clear()

    # ---- looking -----------------------------------------------------------------------------------------------------------

    def nodes(self) -> list[Any]:
        return [n for n in self.core._node_arena.values() if n is not self.core.root_node]

    def node(self, node_id: int) -> Any:
        return self.core.node_by_id(node_id)

    def records(self, tokens: Sequence[int]) -> list[Any]:
        """Records of the path of a cached prefix, root first."""
        node, path = self.node(self.match(tokens).best_match_node), []
        while node is not self.core.root_node:
            path.append(record_of(node))
            node = node.parent
        return path[::-1]

    def content_ok(self, tokens: Sequence[int]) -> bool:
        """Whether the device KV of a cached prefix is the tokens' own, in both layers, keys and values."""
        found = self.match(tokens)
        indices = self.cache.path_device_indices(found.last_device_node)
        wanted = torch.tensor(tokens[: found.device_prefix_len], dtype=torch.float32)
        return all(
            bool(torch.equal(self.pool.k_buffer[i][indices][:, 0, 0], wanted + i))
            and bool(torch.equal(self.pool.v_buffer[i][indices][:, 0, 3], -wanted - i))
            for i in range(LAYERS)
        )

    def host_free(self) -> int:
        return int(self.cache.cache_controller.mem_pool_host.available_size())

    # ---- workflows ---------------------------------------------------------------------------------------------------------

    def call(self, workflow: str, agent: str, tokens: Sequence[int], *, final: bool = False) -> None:
        """A whole call: its path enters the tree, the workflow touches it, the call ends."""
        if self.put(tokens) is None:
            return
        made, agent_id = self.runtime.state.begin_call(CallIdentity(workflow, agent, final))
        self.runtime.state.touch(made, agent_id, self.records(tokens))
        self.runtime.state.end_call(made, final=final)

    def check(self) -> None:
        """What must hold of the plugin's bookkeeping at any moment between operations, on top of SGLang's own check."""
        # SGLang's check does not know write-through loads in flight: it misses their duplicates until the ack, in the stock cache too.
        if not self.cache.ongoing_load_back:
            self.cache.sanity_check()
        core, runtime = self.core, self.runtime
        if runtime is None:
            return
        for leaves, queue in ((core.evictable_device_leaves, runtime.device), (core.evictable_host_leaves, runtime.host)):
            assert {n.pbkv.node_id for n in leaves} == set(queue._alive), "leaf set and queue differ"
        for queue in (runtime.device, runtime.host, runtime.prefetch.queue):
            check_order(queue)
        for node in self.nodes():
            record = node.__dict__.get("pbkv")
            if record is not None:
                assert record.node is node
                assert record.node_id == node.id
                assert record.tokens == len(node.key), f"node {node.id}: {record.tokens} tokens, key has {len(node.key)}"
        there = {n.pbkv for n in self.nodes() if "pbkv" in n.__dict__}
        for workflow in runtime.state.live.values():
            assert set(workflow.records) <= there, "a workflow holds a record of a node that left the tree"
        assert set(runtime.prefetch.queue._alive.values()) <= there
