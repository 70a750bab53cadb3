"""One scheduler's PBKV: state, queues, prefetch and telemetry around SGLang's cache. Rank 0 has telemetry, the others decide the same
without it: decisions use requests, control messages, tree state and logical counters only.
"""

import time
from typing import Any

from sglang.srt.mem_cache.base_prefix_cache import EvictParams

from pbkv.eviction import policies
from pbkv.eviction.queue import LazyQueue
from pbkv.knobs import KnobSet
from pbkv.predictor.markov import OnlineMarkov
from pbkv.record import NodeRecord
from pbkv.sglang.calls import Calls
from pbkv.sglang.config import PluginConfig
from pbkv.sglang.occupancy import Sampler
from pbkv.sglang.pages import Pages
from pbkv.sglang.prefetch import Prefetcher
from pbkv.sglang.stream import Stream
from pbkv.sglang.tree import FULL, LeafSet, device_tokens, host_tokens, record_of, tier_of
from pbkv.state import CacheState
from pbkv.telemetry import Telemetry
from pbkv.workflow import Workflow


class Runtime:
    """Built once per scheduler process; the cache, its Full component and the scheduler hooks hold a reference."""

    def __init__(self, cache: Any, config: PluginConfig, ctx: Any) -> None:
        self.cache, self.config = cache, config
        self.core = cache.tree_core
        self.step = 0
        self.knobs = KnobSet(config.knob_values())
        self.history: list[dict[str, Any]] = []
        self.predictor = OnlineMarkov()
        self.state = CacheState(self.knobs, self.predictor, self)
        self.device: LazyQueue[NodeRecord] = LazyQueue(lambda r: self._device_key(r), lambda r: r.node_id)
        self.host: LazyQueue[NodeRecord] = LazyQueue(lambda r: self._host_key(r), lambda r: r.node_id)
        self._use_policy()
        self.counts: dict[str, int] = dict.fromkeys(
            ("calls", "unattributed", "malformed", "evicted_nodes", "evicted_tokens", "retired_workflows", "prefetches_issued"), 0
        )
        self.retired_only = False
        self._walk: list[NodeRecord] = []
        self._predict_started = 0
        self.bytes_per_token = _bytes_per_token(cache)
        self.stream = Stream(config, ctx) if ctx.tp_rank == 0 and config.events else None
        self.telemetry: Telemetry | None = None
        self.pages: Pages | None = None
        if self.stream is not None:
            self.telemetry = Telemetry(self.stream.writer, tier_of, self._parent_of, self.state.agent_names)
            self.pages = Pages(cache.page_size, self.telemetry)
        self.prefetch = Prefetcher(self)
        self.sampler = Sampler(self)
        self.calls = Calls(self)
        cache.runtime = cache.components[FULL].runtime = self
        self.attach_tree()

    # ---- tree --------------------------------------------------------------------------------------------------------------

    def attach_tree(self) -> None:
        """Take over the leaf sets of a tree that is new or was flushed, and follow its nodes' removal."""
        # By way of the workflows: after a flush the old nodes are no longer in the tree.
        self.state.reset()
        self.device.clear()
        self.host.clear()
        self.prefetch.reset()
        self._walk.clear()
        if self.telemetry:
            self.telemetry.reset()
        self.core.evictable_device_leaves = LeafSet(self.device)
        self.core.evictable_host_leaves = LeafSet(self.host)
        unregister = type(self.core)._unregister_node

        def unregister_node(node: Any) -> None:
            unregister(self.core, node)
            self._removed(node)

        self.core._unregister_node = unregister_node

    def _removed(self, node: Any) -> None:
        record: NodeRecord | None = node.__dict__.get("pbkv")
        if record is None:
            return
        for queue in (self.device, self.host, self.prefetch.queue):
            queue.discard(record)
        self.prefetch.evicted(record)
        self.state.forget(record)
        if self.telemetry:
            self.telemetry.forget(record)

    def split(self, prefix_node: Any, suffix_node: Any) -> None:
        """SGLang cut a node in two; the prefix is the new one, the suffix keeps id and record."""
        suffix = suffix_node.__dict__.get("pbkv")
        if suffix is None:
            return
        prefix = record_of(prefix_node)
        suffix.tokens -= prefix.tokens
        self.state.split(prefix, suffix)
        if suffix in self.prefetch.queue:
            self.prefetch.queue.add(prefix)

    def _parent_of(self, record: NodeRecord) -> int:
        parent = record.node.parent  # type: ignore[attr-defined]
        return 0 if parent is None or parent is self.core.root_node else parent.id

    # ---- eviction ----------------------------------------------------------------------------------------------------------

    def _use_policy(self) -> None:
        policy = str(self.knobs["policy"])
        self._device_key, self._host_key = policies.DEVICE[policy], policies.HOST[policy]

    def next_device_victim(self) -> int | None:
        """Node id of the next device victim of the walk; None ends the walk."""
        started = time.perf_counter_ns()
        record = self.device.peek()
        if record is None or (self.retired_only and not record.retired):
            return None
        leaves = len(self.device)
        second = self.device.peek_second() if self.telemetry else None
        self.device.discard(record)
        self._walk.append(record)
        record.evicted_step = self.step
        self.counts["evicted_nodes"] += 1
        self.counts["evicted_tokens"] += record.tokens
        self.prefetch.evicted(record)
        if self.telemetry:
            to_tier = "host" if record.node.backuped or self.cache.is_write_back else "none"  # type: ignore[attr-defined]
            self._report(record, second, "device", to_tier, leaves, time.perf_counter_ns() - started)
        return record.node_id

    def end_device_walk(self) -> None:
        """Whoever was chosen but could not be evicted is a candidate again; whoever moved to the host may be prefetched."""
        for record in self._walk:
            if record.node in self.core.evictable_device_leaves:
                self.device.add(record)
            elif record.live and tier_of(record) == "host":
                self.prefetch.queue.add(record)
        self._walk.clear()

    def next_host_victim(self) -> Any | None:
        """Next node to drop from host memory, or None."""
        started = time.perf_counter_ns()
        record = self.host.peek()
        if record is None:
            return None
        if self.telemetry:
            self._report(record, self.host.peek_second(), "host", "none", len(self.host), time.perf_counter_ns() - started)
        self.host.discard(record)
        return record.node

    def _report(self, record: NodeRecord, second: NodeRecord | None, source: str, target: str, leaves: int, took_ns: int) -> None:
        assert self.telemetry is not None
        policy = str(self.knobs["policy"]) if source == "device" else "lru" if self.knobs["policy"] == "lru" else "lae"
        decision = policies.decision_of(policy, record, second)
        self.telemetry.eviction(record, source, target, decision, leaves, took_ns, self.calls.name_of(record.last_workflow))

    def reclaim_retired(self, tokens: int) -> int:
        """Evict up to `tokens` of retired device cache and nothing else; returns what was freed."""
        self.retired_only = True
        try:
            return int(self.cache.evict(EvictParams(num_tokens=tokens)).num_tokens_evicted)
        finally:
            self.retired_only = False

    # ---- what the state tells (pbkv.state.Listener) -------------------------------------------------------------------------

    def rescored(self, record: NodeRecord, fell: bool) -> None:
        if fell:
            self.device.push(record)
            self.host.push(record)
        # Its order is by value (Eq. 1), which may rise while the score (Eq. 2) falls.
        self.prefetch.queue.push(record)
        if self.telemetry:
            self.telemetry.changed(record)

    def predicted(self, workflow: Workflow) -> None:
        if self.telemetry:
            self.telemetry.prediction(workflow, self.predictor.version, self.calls.predict_us())

    def started(self, workflow: Workflow) -> None:
        if self.telemetry:
            self.telemetry.workflow(workflow, "start")

    def retired(self, workflow: Workflow, reason: str, records: list[NodeRecord]) -> None:
        self.counts["retired_workflows"] += 1
        if not self.telemetry:
            return
        self.telemetry.workflow(workflow, "end", reason)
        device = sum(device_tokens(r.node) for r in records)
        host = sum(host_tokens(r.node) for r in records)
        self.telemetry.workflow(workflow, "retire", reason, device, host)

    # ---- scheduler step ----------------------------------------------------------------------------------------------------

    def after_plan(self, scheduler: Any, batch: Any) -> None:
        """Called once per turn of the scheduler's loop, after the batch was chosen and before it runs. Idle turns are not steps."""
        self.step += batch is not None
        self.prefetch.step(scheduler, batch)
        if self.telemetry:
            self.sampler.step(scheduler, batch)
            self.telemetry.end_step(self.step)

    def backed_up(self, tokens: int) -> None:
        """Tokens queued for a copy to the host."""
        self.prefetch.windows.moved(d2h=tokens * self.bytes_per_token)

    def knobs_changed(self, names: set[str]) -> None:
        """New values are in force: re-score or re-order, keeping the warm cache as it is."""
        if names & {"gamma", "k"}:
            self.state.rescore()
        if "policy" in names:
            self._use_policy()
            self.device.rebuild()
            self.host.rebuild()


def _bytes_per_token(cache: Any) -> int:
    pool = cache.token_to_kv_pool_allocator.get_kvcache()
    k_bytes, v_bytes = pool.get_kv_size_bytes()
    return max(1, int(k_bytes + v_bytes) // max(1, int(pool.size) + int(pool.page_size)))
