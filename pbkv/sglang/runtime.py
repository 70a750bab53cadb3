"""One scheduler's PBKV: the shared cache manager around SGLang's cache. Rank 0 has telemetry, the others decide the same without it."""

from typing import Any

from sglang.srt.mem_cache.base_prefix_cache import EvictParams

from pbkv.config import ServerConfig
from pbkv.control.commands import Commands
from pbkv.events.stream import stream_facts
from pbkv.knobs import KnobSet
from pbkv.manager import CacheManager
from pbkv.predictor.load import signal_of
from pbkv.predictor.names import Roster
from pbkv.record import NodeRecord
from pbkv.sglang.calls import Call, Calls
from pbkv.sglang.forecasts import forecasts_of, predictor_of
from pbkv.sglang.guard import Guard, GuardedTelemetry
from pbkv.sglang.meters import meters_of
from pbkv.sglang.occupancy import Sampler
from pbkv.sglang.pages import Pages
from pbkv.sglang.prefetch import LoadBacks
from pbkv.sglang.ranks import is_leader
from pbkv.sglang.signals import Signals
from pbkv.sglang.sources import source_for, sources_of
from pbkv.sglang.stream import open_stream
from pbkv.sglang.tree import FULL, LeafSet, NodeTree, record_of
from pbkv.telemetry import Telemetry


class Runtime(CacheManager):
    """Built once per scheduler process; the cache, its Full component and the scheduler hooks hold a reference."""

    def __init__(self, cache: Any, config: ServerConfig, ctx: Any, replica: int = 0) -> None:
        self.cache, self.config = cache, config
        self.core = cache.tree_core
        tree = NodeTree(cache)
        knobs, roster = KnobSet(config.knob_values()), Roster()
        predictor = predictor_of(config, roster, ctx)
        super().__init__(tree, knobs, predictor, bytes_per_token=_bytes_per_token(cache), always_score=True)
        roster.bind(self.state.agent_names)
        self.guard = Guard(self._failed)
        self.era, self.replica = 0, replica
        self.stream = open_stream(config, ctx, replica)
        self.pages: Pages | None = None
        if self.stream is not None:
            report = (self.stream.writer, tree.tier_of, tree.parent_of, self.state.agent_names)
            self.observe_with(GuardedTelemetry(*report, failed=self._cannot_report))
        self.loads = LoadBacks(self)
        self.sampler = Sampler(self)
        self.calls = Calls(self)
        self._ctx = ctx
        self.forecasts = forecasts_of(self.state, predictor, config, ctx)
        self._read_signals(ctx)
        self.meters = meters_of(self, ctx)
        self.commands = Commands(self, self._facts)
        cache.runtime = cache.components[FULL].runtime = self
        self.attach_tree()

    def _facts(self) -> dict[str, Any]:
        """What `GET /pbkv/state` says of this engine besides its cache."""
        fault = self.guard.fault or None
        guard = {"fault": fault, "faults": self.guard.faults, "step_us": self.guard.steps.summary()}
        return {"engine": "sglang", "server": self.config.server, **guard, **self._forecast_facts(), **stream_facts(self.stream)}

    def _forecast_facts(self) -> dict[str, Any]:
        if self.forecasts is None:
            return {}
        signal = self.signals.source.kind if self.signals and self.signals.active else ""
        return {"predictor": {**self.forecasts.facts(), "signal": signal}}

    def observe_with(self, telemetry: Telemetry) -> None:
        super().observe_with(telemetry)
        self.pages = Pages(self.cache.page_size, telemetry)

    # ---- text signals ------------------------------------------------------------------------------------------------------

    def _read_signals(self, ctx: Any) -> None:
        wanted = signal_of(self.config.predictor) if self.config.predictor else ""
        source = source_for(wanted, sources_of(ctx)) if wanted else None
        self.leads = is_leader(ctx)
        #: With hidden states, more is known of a prompt when it has been read than when its call begins; the same on all ranks.
        self.hears = source is not None and source.runner is not None
        self.signals: Signals | None = Signals(self, source, feeds=True) if source and self.leads else None

    def checkpointed(self, req: Any, call: Call, *, first: bool) -> None:
        """A call's path has been taken in; `first`: it has begun by this."""
        if first:
            if self.signals:
                self.signals.began(req, call)
        elif self.hears and len(req.output_ids) == 1 and call.workflow is not None and not call.final:
            self.state.heard(call.workflow)

    def settle(self) -> None:
        """All that a batch brought about has been told: predict."""
        if self.signals:
            self.signals.settle()
        if self.forecasts:
            self.forecasts.flush()

    @property
    def signal_kind(self) -> str:
        return self.signals.source.kind if self.signals else ""

    def record(self, epoch: int, after: int, now: float) -> dict[str, Any]:
        if not self.leads:
            return {}
        if self.signals is None:
            self.signals = Signals(self, sources_of(self._ctx)[0], feeds=False)
        rows = super().record(epoch, after, now)
        self.signals.update()
        return rows

    def end_recording(self, now: float) -> None:
        super().end_recording(now)
        if self.signals:
            self.signals.update()

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
        self.state.take_due()
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
        self.settle()
        self.calls.prune(scheduler.waiting_queue)
        self.loads.step(scheduler, batch)
        if self.telemetry:
            self.sampler.step(scheduler, batch)
            self.telemetry.end_step(self.step)
        if self.meters:
            self.meters.step()

    def backed_up(self, tokens: int) -> None:
        """Tokens queued for copying to the host."""
        self.prefetch.windows.moved(d2h=tokens * self.bytes_per_token)


def _bytes_per_token(cache: Any) -> int:
    pool = cache.token_to_kv_pool_allocator.get_kvcache()
    size = pool.get_kv_size_bytes()  # (K, V), or one latent for both with MLA
    total = sum(map(int, size)) if isinstance(size, tuple) else int(size)
    return max(1, total // max(1, int(pool.size) + int(pool.page_size)))
