"""One cache under PBKV: state, queues, policy, prefetch and telemetry around a tree. The SGLang plugin and the embedded engine share it.

Decisions use calls, control messages, tree state and logical counters only, so that all ranks decide the same; telemetry, which rank 0 has
and others have not, decides nothing.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from pbkv.events.schema import Namespace
from pbkv.eviction import catalog
from pbkv.eviction.base import Key, Policy
from pbkv.eviction.lae import Lae
from pbkv.eviction.queue import LazyQueue
from pbkv.knobs import KnobSet
from pbkv.predictor.base import Predictor
from pbkv.prefetch.lifecycle import Prefetcher
from pbkv.reads import Reads
from pbkv.record import NodeRecord
from pbkv.recorder import LEASE_S, Recorder
from pbkv.state import CacheState
from pbkv.telemetry import Telemetry
from pbkv.workflow import Workflow

#: Names of past workflows kept for the event stream: nodes outlive the workflows that touched them.
MAX_PAST = 100_000
#: Queued calls whose paths are held.
MAX_HELD = 4096
COUNTS = (
    "calls", "unattributed", "malformed", "evicted_nodes", "evicted_tokens", "evicted_retired_tokens", "retired_workflows", "predictions",
    "prefetches_issued", "prefetches_used", "prefetches_late", "prefetches_evicted_unused",
)

_NODE_ID: Callable[[NodeRecord], int] = attrgetter("node_id")


class Tree(Protocol):
    """What the manager asks of a tree about a record's node."""

    def tier_of(self, record: NodeRecord) -> str:
        """Where its KV is: "none", "device", "host" or "both"."""
        ...

    def parent_of(self, record: NodeRecord) -> int:
        """Node id of the parent; 0 = root."""
        ...

    def tokens_of(self, record: NodeRecord) -> tuple[int, int]:
        """Tokens of its KV on the device and in host memory."""
        ...

    def is_device_leaf(self, record: NodeRecord) -> bool:
        """May be evicted from the device now."""
        ...


@dataclass(slots=True)
class _Chosen:
    """A device victim whose fate is not known yet, and what its choice is to be told with."""

    record: NodeRecord
    retired: bool  # a record whose node has left the tree no longer knows who touched it
    decision: str = ""
    leaves: int = 0
    took_ns: int = 0


class CacheManager:
    """`timer`: nanosecond clock for durations in events; decides nothing. Without `telemetry` nothing is reported.

    `always_score`: predict and score although nothing here reads it: of several ranks one has telemetry, and all must learn alike.
    """

    def __init__(
        self, tree: Tree, knobs: KnobSet, predictor: Predictor, *, bytes_per_token: int, timer: Callable[[], int] = time.perf_counter_ns,
        always_score: bool = False,
    ) -> None:
        self.tree, self.knobs, self.bytes_per_token, self.timer = tree, knobs, bytes_per_token, timer
        self.step = 0
        self.telemetry: Telemetry | None = None
        self.recorder: Recorder | None = None  # of training rows, while somebody comes for them
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self.reads = Reads()
        self.predictor = predictor
        self._lae = Lae()
        self.policy: Policy = catalog.make_policy(str(knobs["policy"]), self.reads, self.rekeyed)
        self.device: LazyQueue[NodeRecord] = LazyQueue(self.policy.key, _NODE_ID)
        self.host: LazyQueue[NodeRecord] = LazyQueue(self._host_key(), _NODE_ID)
        self.prefetch: Prefetcher = Prefetcher(self)
        self._members = (self.device.members, self.host.members, self.prefetch.queue.members)
        self.state = CacheState(knobs, predictor, self.policy, self.reads, self, timer=timer)
        #: While set, the walk ends at the first victim that it does not admit.
        self.only: Callable[[NodeRecord], bool] | None = None
        self._walk: list[NodeRecord] = []
        self._chosen: _Chosen | None = None
        self._held: dict[int, list[NodeRecord]] = {}
        self._names: dict[int, str] = {}
        self._always_score = always_score
        self._set_scoring()

    # ---- tree --------------------------------------------------------------------------------------------------------------

    def flushed(self) -> None:
        """The tree is empty: by way of the workflows, since the old nodes are no longer in it."""
        self.state.reset()
        self.device.clear()
        self.host.clear()
        self.prefetch.reset()
        self._walk.clear()
        self._chosen = None
        self._held.clear()
        if self.telemetry:
            self.telemetry.reset()

    def removed(self, record: NodeRecord) -> None:
        """The node left the tree."""
        number = record.node_id
        for members in self._members:
            members.pop(number, None)
        if record.prefetch_id:
            self.prefetch.evicted(record)
        if record.live or self.policy.follows:
            self.state.forget(record)
        if self.telemetry:
            self.telemetry.forget(record)

    def split(self, prefix: NodeRecord, suffix: NodeRecord) -> None:
        """A node was cut in two; the prefix is the new one, the suffix keeps id and record."""
        suffix.tokens -= prefix.tokens
        self.state.split(prefix, suffix)
        if suffix.holds:
            prefix.holds = dict(suffix.holds)
            for number in suffix.holds:
                self._held[number].append(prefix)
        if suffix in self.prefetch.queue:
            self.prefetch.queue.add(prefix)

    # ---- workflows ---------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Move the clock, seconds."""
        self.state.tick(now)

    def close(self, workflow: str) -> bool:
        """The workflow is over; False when no such workflow is live."""
        return self.state.close(workflow)

    # ---- queued calls ------------------------------------------------------------------------------------------------------

    def hold(self, number: int, path: Iterable[NodeRecord]) -> None:
        """Queued call `number` (ascending by arrival) will read these nodes; beyond MAX_HELD calls nothing is held."""
        if len(self._held) >= MAX_HELD or number in self._held:
            return
        held = self._held[number] = list(path)
        for record in held:
            if record.holds is None:
                record.holds = {}
            record.holds[number] = None

    def release(self, number: int) -> None:
        """The call was admitted or is gone."""
        for record in self._held.pop(number, ()):
            if record.holds is not None and number in record.holds:
                del record.holds[number]
                self.rekeyed(record)

    # ---- eviction ----------------------------------------------------------------------------------------------------------

    def next_device_victim(self) -> NodeRecord | None:
        """The next device victim of the walk; None ends the walk."""
        self._settle()
        started = self.timer() if self.telemetry else 0
        record = self.device.peek()
        if record is None or (self.only is not None and not self.only(record)):
            return None
        chosen = self._chosen = _Chosen(record, record.retired)
        if self.telemetry:
            chosen.decision = catalog.decision_of(self.policy, record, self.device.peek_second())
            chosen.leaves, chosen.took_ns = len(self.device), self.timer() - started
        self.device.discard(record)
        self._walk.append(record)
        return record

    def _settle(self) -> None:
        """What became of the last victim: a node whose write back found no room may have stayed, and then nothing was evicted."""
        chosen, self._chosen = self._chosen, None
        if chosen is None:
            return
        record, tier = chosen.record, self.tree.tier_of(chosen.record)
        if tier not in ("host", "none"):
            return
        self.counts["evicted_nodes"] += 1
        self.counts["evicted_tokens"] += record.tokens
        if chosen.retired:
            self.counts["evicted_retired_tokens"] += record.tokens
        record.evicted_step = self.step
        if self.telemetry:
            workflow = self.event_id(record.last_workflow)
            self.telemetry.eviction(record, "device", tier, chosen.decision, chosen.leaves, chosen.took_ns, workflow)
        if record.prefetch_id:
            self.prefetch.evicted(record)

    def end_device_walk(self) -> None:
        """Whoever was chosen but could not be evicted is a candidate again; whoever moved to the host may be prefetched."""
        self._settle()
        for record in self._walk:
            if self.tree.is_device_leaf(record):
                self.device.add(record)
            elif record.live and self.tree.tier_of(record) == "host":
                self.prefetch.queue.add(record)
        self._walk.clear()

    def next_host_victim(self) -> NodeRecord | None:
        """The next node to drop from host memory, or None."""
        started = self.timer() if self.telemetry else 0
        record = self.host.peek()
        if record is None:
            return None
        if self.telemetry:
            policy = self._lae if self._host_by_recency() else self.policy
            decision = catalog.decision_of(policy, record, self.host.peek_second())
            took, workflow = self.timer() - started, self.event_id(record.last_workflow)
            self.telemetry.eviction(record, "host", "none", decision, len(self.host), took, workflow)
        self.host.discard(record)
        return record

    def event_id(self, workflow: int) -> int:
        """Id in the event stream of the name of a workflow, live or past, by its number; 0 when forgotten."""
        name = self._names.get(workflow)
        return self.telemetry.writer.intern(Namespace.WORKFLOW, name) if self.telemetry and name else 0

    def _host_by_recency(self) -> bool:
        return self.knobs["host_order"] == "recency" and self.policy.name not in ("lru", "session_lae")

    def _host_key(self) -> Callable[[NodeRecord], Key]:
        return self._lae.key if self._host_by_recency() else self.policy.key

    # ---- what the state tells (pbkv.listener.Listener) ----------------------------------------------------------------------

    def rescored(self, records: Iterable[NodeRecord], fell: bool) -> None:
        if fell and self.policy.by_score:
            self.device.push_all(records)
            self.host.push_all(records)
        # Its order is by value (Eq. 1), which may rise while the score falls.
        self.prefetch.queue.push_all(records)
        if self.telemetry:
            for record in records:
                self.telemetry.changed(record)

    def rekeyed(self, record: NodeRecord) -> None:
        self.device.push(record)
        self.host.push(record)

    def predicted(self, workflow: Workflow, version: int, took_ns: int) -> None:
        self.counts["predictions"] += 1
        if self.telemetry:
            self.telemetry.prediction(workflow, version, took_ns / 1e3)

    def started(self, workflow: Workflow) -> None:
        if self.telemetry:
            self._names[workflow.name_id] = workflow.name
            if len(self._names) > MAX_PAST:
                del self._names[next(iter(self._names))]
            self.telemetry.workflow(workflow, "start")

    def retired(self, workflow: Workflow, reason: str, records: list[NodeRecord]) -> None:
        self.counts["retired_workflows"] += 1
        if self.recorder:
            self.recorder.ended(workflow, reason)
        if not self.telemetry:
            return
        self.telemetry.workflow(workflow, "end", reason)
        tokens = [self.tree.tokens_of(record) for record in records]
        self.telemetry.workflow(workflow, "retire", reason, sum(device for device, _ in tokens), sum(host for _, host in tokens))

    # ---- training rows -----------------------------------------------------------------------------------------------------

    def record(self, epoch: int, after: int, now: float) -> dict[str, Any]:
        """Training rows since those that the caller has, see `Recorder.since`; asking for them is what keeps a recording going."""
        if self.recorder is None:
            self.recorder = Recorder(self.signal_kind)
        self.recorder.asked = now
        return self.recorder.since(epoch, after)

    @property
    def signal_kind(self) -> str:
        """Kind of the text signals that calls come with, for recordings; empty = none."""
        return ""

    def end_recording(self, now: float) -> None:
        """If nobody has asked for a while."""
        if self.recorder and now - self.recorder.asked > LEASE_S:
            self.recorder = None

    # ---- knobs -------------------------------------------------------------------------------------------------------------

    def knobs_changed(self, names: set[str]) -> None:
        """Values in `knobs` have changed: scores and orders follow, nothing cached is lost."""
        if "policy" in names:
            self.use(catalog.make_policy(str(self.knobs["policy"]), self.reads, self.rekeyed))
        elif names & {"gamma", "k"}:
            self.state.rescore()
        if "host_order" in names:
            self.host.order_by(self._host_key())
        self._set_scoring()

    def use(self, policy: Policy) -> None:
        """Order by this policy from now on."""
        self.policy = policy
        self.state.use(policy)
        self.device.order_by(policy.key)
        self.host.order_by(self._host_key())
        self._set_scoring()

    def _set_scoring(self) -> None:
        wanted = self.policy.by_score or self.telemetry is not None or self.knobs["prefetch"] != "off"
        self.state.score_from_now_on(wanted or self._always_score)

    def observe_with(self, telemetry: Telemetry) -> None:
        """Report through `telemetry`, which also shows predictions and scores that the policy may not need."""
        self.telemetry = telemetry
        self._set_scoring()

