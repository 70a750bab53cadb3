"""One scheduler's PBKV: the shared cache manager around SGLang's cache. Rank 0 has telemetry, the others decide the same without it."""

from typing import Any

from sglang.srt.mem_cache.base_prefix_cache import EvictParams

from pbkv.config import ServerConfig
from pbkv.control.commands import Commands
from pbkv.errors import UsageError
from pbkv.events.stream import stream_facts
from pbkv.knobs import KnobSet
from pbkv.manager import CacheManager
from pbkv.predictor.base import Predictor
from pbkv.predictor.load import serving_predictor
from pbkv.predictor.names import Roster
from pbkv.record import NodeRecord
from pbkv.sglang.calls import Calls
from pbkv.sglang.guard import Guard, GuardedTelemetry
from pbkv.sglang.occupancy import Sampler
from pbkv.sglang.pages import Pages
from pbkv.sglang.prefetch import LoadBacks
from pbkv.sglang.stream import open_stream
from pbkv.sglang.tree import FULL, LeafSet, NodeTree, record_of
from pbkv.telemetry import Telemetry


class Runtime(CacheManager):
    """Built once per scheduler process; the cache, its Full component and the scheduler hooks hold a reference."""

    def __init__(self, cache: Any, config: ServerConfig, ctx: Any) -> None:
        self.cache, self.config = cache, config
        self.core = cache.tree_core
        tree = NodeTree(cache)
        knobs, roster = KnobSet(config.knob_values()), Roster()
        predictor = _predictor(config, roster, int(ctx.tp_size))
        super().__init__(tree, knobs, predictor, bytes_per_token=_bytes_per_token(cache), always_score=True)
        roster.bind(self.state.agent_names)
        self.guard = Guard(self._failed)
        self.era = 0
        self.stream = open_stream(config, ctx)
        self.pages: Pages | None = None
        if self.stream is not None:
            report = (self.stream.writer, tree.tier_of, tree.parent_of, self.state.agent_names)
            self.observe_with(GuardedTelemetry(*report, failed=self._cannot_report))
        self.loads = LoadBacks(self)
        self.sampler = Sampler(self)
        self.calls = Calls(self)
        self.commands = Commands(self, self._facts)
        cache.runtime = cache.components[FULL].runtime = self
        self.attach_tree()

    def _facts(self) -> dict[str, Any]:
        """What `GET /pbkv/state` says of this engine besides its cache."""
        fault = self.guard.fault or None
        guard = {"fault": fault, "faults": self.guard.faults, "step_us": self.guard.steps.summary()}
        return {"engine": "sglang", "server": self.config.server, **guard, **stream_facts(self.stream)}

    def observe_with(self, telemetry: Telemetry) -> None:
        super().observe_with(telemetry)
        self.pages = Pages(self.cache.page_size, telemetry)

    # ---- tree --------------------------------------------------------------------------------------------------------------

    def attach_tree(self) -> None:
        """Take over the leaf sets of a tree that is new or was flushed, and follow its nodes' removal."""
        self.flushed()
        self.core.evictable_device_leaves = LeafSet(self.device, self.guard)
        self.core.evictable_host_leaves = LeafSet(self.host, self.guard)
        unregister = type(self.core)._unregister_node

        def unregister_node(node: Any) -> None:
            unregister(self.core, node)
            record: NodeRecord | None = node.__dict__.get("pbkv")
            if record is not None:
                self.guard.run(self.removed, record)

        self.core._unregister_node = unregister_node

    def node_split(self, prefix_node: Any, suffix_node: Any) -> None:
        """SGLang cut a node in two; the prefix is the new one, the suffix keeps id and record."""
        suffix = suffix_node.__dict__.get("pbkv")
        if suffix is not None:
            self.split(record_of(prefix_node), suffix)

    # ---- faults ------------------------------------------------------------------------------------------------------------

    def _failed(self) -> None:
        """From now on SGLang's own LRU; said where knob changes are said."""
        self.commands.set_by_guard({"policy": "lru"}, self.guard.fault)

    def _cannot_report(self) -> None:
        self.telemetry = self.pages = None

    def knobs_changed(self, names: set[str]) -> None:
        if self.guard.fault and "policy" in names:
            self._rearm()
        self.guard.run(super().knobs_changed, names)

    def tick(self, now: float) -> None:
        self.guard.run(super().tick, now)
        self.state.now = max(self.state.now, now)  # also after a fault: unconfirmed changes expire by it

    def close(self, workflow: str) -> bool:
        self.calls.closed(workflow)
        return super().close(workflow)

    def _rearm(self) -> None:
        """After a fault nothing we know of nodes and workflows can be trusted, so all of it begins anew."""
        self.guard.fault = ""
        self.era += 1
        self.state.live.clear()
        self.calls.forget_queued()
        for node in self.core._node_arena.values():
            node.__dict__.pop("pbkv", None)
        self.flushed()
        self.core.evictable_device_leaves.reenter()
        self.core.evictable_host_leaves.reenter()

    # ---- eviction ----------------------------------------------------------------------------------------------------------

    def evict(self, tokens: int) -> int:
        """Evict up to `tokens` from the device in the order of the policy; returns what was freed."""
        return int(self.cache.evict(EvictParams(num_tokens=tokens)).num_tokens_evicted)

    # ---- scheduler step ----------------------------------------------------------------------------------------------------

    def turn(self, scheduler: Any, batch: Any) -> None:
        """A turn of the scheduler's loop has chosen its batch, None = idle."""
        self.guard.run(self.after_plan, scheduler, batch)
        self.guard.end_step(idle=batch is None)

    def after_plan(self, scheduler: Any, batch: Any) -> None:
        """Called once per turn of the scheduler's loop, after the batch was chosen and before it runs. Idle turns are not steps."""
        self.step += batch is not None
        self.calls.prune(scheduler.waiting_queue)
        self.loads.step(scheduler, batch)
        if self.telemetry:
            self.sampler.step(scheduler, batch)
            self.telemetry.end_step(self.step)

    def backed_up(self, tokens: int) -> None:
        """Tokens queued for copying to the host."""
        self.prefetch.windows.moved(d2h=tokens * self.bytes_per_token)


def _predictor(config: ServerConfig, roster: Roster, ranks: int) -> Predictor:
    # Ranks must predict bit for bit the same, which counts do and the sums of a network on different machines need not.
    if config.predictor and ranks > 1:
        given = f"predictor = {config.predictor!r}"
        raise UsageError(f"{given}: a trained predictor serves one tensor-parallel rank, this server has {ranks}; remove the setting")
    return serving_predictor(config.predictor, roster)


def _bytes_per_token(cache: Any) -> int:
    pool = cache.token_to_kv_pool_allocator.get_kvcache()
    size = pool.get_kv_size_bytes()  # (K, V), or one latent for both with MLA
    total = sum(map(int, size)) if isinstance(size, tuple) else int(size)
    return max(1, total // max(1, int(pool.size) + int(pool.page_size)))
