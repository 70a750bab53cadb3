"""Samples for the event stream: batches, occupancy by state, snapshots of all scores. Rank 0 only; decides nothing."""

import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pbkv.engine.reporter import SETTINGS_S
from pbkv.sglang.facts import server_facts
from pbkv.sglang.tree import device_tokens, host_tokens, record_of

if TYPE_CHECKING:
    from pbkv.sglang.runtime import Runtime

#: Seconds between samples; a walk that takes longer than a fiftieth of that is made less often.
PERIOD_S = 0.5
#: Nodes of a snapshot written per scheduler step, so that a large tree never stalls one.
SNAPSHOT_CHUNK = 128


class Chosen(NamedTuple):
    """A batch as it was chosen; while it runs, SGLang changes it."""

    mode: str
    requests: int
    tokens: int


class Sampler:
    """Fed once per scheduler step, also while idle."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._last_ns = time.monotonic_ns()
        self._chosen: deque[Chosen | None] = deque()  # of the newest turns, None = idle
        self._next_sample = self._next_snapshot = self._next_settings = 0.0
        self._snapshot: Iterator[Any] | None = None

    def step(self, scheduler: Any, batch: Any) -> None:
        """Write this step's batch and what is due of samples and snapshots."""
        now_ns = time.monotonic_ns()
        self._batch(scheduler, batch, (now_ns - self._last_ns) / 1e3)
        self._last_ns = now_ns
        now = now_ns / 1e9
        if now >= self._next_sample:
            self._occupancy(scheduler)
            self._next_sample = now + max(PERIOD_S, 50 * (time.monotonic_ns() - now_ns) / 1e9)
        if now >= self._next_settings:
            self._next_settings = now + SETTINGS_S
            assert self._runtime.telemetry is not None
            self._runtime.telemetry.settings(server_facts(self._runtime, scheduler))
        self._score_snapshot(now)

    def _batch(self, scheduler: Any, batch: Any, since_us: float) -> None:
        """Write the batch that ran since the previous turn: the one chosen then, or with overlap the one before, whose result SGLang waits
        for after it has started the next.
        """
        telemetry = self._runtime.telemetry
        assert telemetry is not None
        if len(self._chosen) >= (2 if _overlaps(scheduler) else 1) and (ran := self._chosen.popleft()) is not None:
            telemetry.batch(*ran, since_us)
        self._chosen.append(None if batch is None else _chosen(batch))

    def _occupancy(self, scheduler: Any) -> None:
        runtime = self._runtime
        telemetry = runtime.telemetry
        assert telemetry is not None
        active = retired = host_retired = 0
        for node in list(runtime.core._node_arena.values()):
            if node is runtime.core.root_node:
                continue
            record = record_of(node)
            locked = any(data.lock_ref for data in node.component_data)
            if record.retired:
                retired += 0 if locked else device_tokens(node)
                host_retired += host_tokens(node)
            elif not locked:
                active += device_tokens(node)
        allocator = runtime.cache.token_to_kv_pool_allocator
        free, size = int(allocator.available_size()), int(allocator.size)
        host_free, host_size = _host_pool(runtime.cache)
        telemetry.occupancy(
            free, active, retired, max(0, size - free - active - retired), host_free, max(0, host_size - host_free - host_retired),
            host_retired, len(runtime.device), len(scheduler.running_batch.reqs), len(scheduler.waiting_queue), len(runtime.state.live),
        )

    def _score_snapshot(self, now: float) -> None:
        runtime = self._runtime
        telemetry = runtime.telemetry
        assert telemetry is not None
        # One is finished before the next begins, or a large tree would never be told to its end.
        if self._snapshot is None:
            if now < self._next_snapshot:
                return
            self._next_snapshot = now + runtime.knobs.number("score_snapshot_s")
            self._snapshot = iter(list(runtime.core._node_arena.values()))
        nodes = list(islice(self._snapshot, SNAPSHOT_CHUNK))
        if len(nodes) < SNAPSHOT_CHUNK:
            self._snapshot = None
        for node in nodes:
            if node is not runtime.core.root_node and node.id in runtime.core._node_arena:
                record = record_of(node)
                telemetry.node_score(record, snapshot=True, workflow=runtime.event_id(record.last_workflow))



def _chosen(batch: Any) -> Chosen:
    mode, requests = batch.forward_mode, len(batch.reqs)
    name = "decode" if mode.is_decode() else "mixed" if mode.is_mixed() else "prefill" if mode.is_extend() else "idle"
    return Chosen(name, requests, requests if name == "decode" else int(batch.extend_num_tokens or 0))


def _overlaps(scheduler: Any) -> bool:
    """Whether a batch is started and then computed beside the scheduler. Without an accelerator it is computed at once."""
    return bool(getattr(scheduler, "enable_overlap", False)) and getattr(scheduler, "device", "cpu") != "cpu"


def _host_pool(cache: Any) -> tuple[int, int]:
    if cache.cache_controller is None:
        return 0, 0
    pool = cache.cache_controller.mem_pool_host
    return int(pool.available_size()), int(pool.size)
