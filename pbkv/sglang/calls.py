"""A call's life as the cache sees it: identity at its first checkpoint, its path at each, its report at the end."""

import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang.srt.managers.schedule_batch import FINISH_ABORT
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.common import _req_radix_key

from pbkv.errors import UsageError
from pbkv.identity import CallIdentity, identity_of
from pbkv.record import NodeRecord
from pbkv.sglang.tree import record_of
from pbkv.telemetry import CallReport
from pbkv.workflow import Workflow

if TYPE_CHECKING:
    from pbkv.sglang.runtime import Runtime

log = logging.getLogger("pbkv")
#: Newest ends of workflows that calls already in the server may belong to.
MAX_CLOSES = 4096


@dataclass
class Call:
    """One running call; `workflow` None = unattributed."""

    workflow: Workflow | None
    agent: int
    agent_name: str
    step: int
    final: bool
    #: Of which life of the state it is: what began before a fault is nobody's after it.
    era: int = 0
    #: False: it was aborted before it ran, so neither workflow nor predictor was told of it.
    ran: bool = True


class Calls:
    """Follows SGLang's requests. State lives on the request itself and dies with it."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._warned = 0
        self._arrivals = 0
        self._closes: OrderedDict[str, int] = OrderedDict()  # workflow -> arrivals until its newest end
        self._queued: dict[int, Any] = {}  # requests whose paths are held, by arrival

    # ---- in the queue ------------------------------------------------------------------------------------------------------

    def queued(self, req: Any) -> None:
        """SGLang put the call into its waiting queue, or back: what it will read is held, where the policy asks for that."""
        self._arrivals += 1
        req.__dict__.setdefault("pbkv_arrival", self._arrivals)
        if not self._runtime.policy.uses_holds or "pbkv_over" in req.__dict__:
            return
        cache = self._runtime.cache
        found = cache.match_prefix(MatchPrefixParams(key=_req_radix_key(cache, req, req.origin_input_ids + req.output_ids)))
        self._queued[self._arrivals] = req
        self._runtime.hold(self._arrivals, [record_of(node) for node in self._path(found.best_match_node)])

    def forget_queued(self) -> None:
        """Nothing is held any more."""
        self._queued.clear()

    def closed(self, workflow: str) -> None:
        """The workflow ends with the calls that are in the server by now, waiting ones included."""
        self._closes[workflow] = self._arrivals
        self._closes.move_to_end(workflow)
        if len(self._closes) > MAX_CLOSES:
            self._closes.popitem(last=False)

    def prune(self, waiting: list[Any]) -> None:
        """Calls that left the queue, by admission or abort, hold nothing any more."""
        if not self._queued:
            return
        there = {id(req) for req in waiting}
        for number in [n for n, req in self._queued.items() if id(req) not in there]:
            del self._queued[number]
            self._runtime.release(number)

    # ---- running -----------------------------------------------------------------------------------------------------------

    def checkpoint(self, req: Any) -> None:
        """SGLang put the call's KV so far into the tree: prefill chunk, end of prefill, or end."""
        call = self._call_of(req)
        first = call is None
        if call is None:
            call = req.pbkv_call = self._begin(req)
        if req.last_node is None:
            return
        path = self._path(req.last_node)
        records = [record_of(node) for node in path]
        if first:
            self._count_hits(req, records)
        if call.workflow is None:
            self._runtime.state.touch_anonymous(records)
        else:
            # What is new on the path beyond the end of prefill was generated.
            self._runtime.state.touch(call.workflow, call.agent, records, step=call.step, output=len(req.output_ids) > 1)
        self._runtime.checkpointed(req, call, first=first)
        if self._runtime.pages:
            req.pbkv_end = (req.last_node, *self._runtime.pages.name_path(path))

    def _call_of(self, req: Any) -> Call | None:
        call: Call | None = req.__dict__.get("pbkv_call")
        return call if call is not None and call.era == self._runtime.era else None

    def _path(self, node_id: int) -> list[Any]:
        core = self._runtime.core
        node, path = core.node_by_id(node_id), []
        while node is not core.root_node:
            path.append(node)
            node = node.parent
        path.reverse()
        return path

    def _begin(self, req: Any) -> Call:
        counts = self._runtime.counts
        counts["calls"] += 1
        identity = self._identity(req)
        if identity is None:
            counts["unattributed"] += 1
            return Call(None, 0, "", 0, False, self._runtime.era)
        workflow, agent = self._runtime.state.begin_call(identity)
        if req.__dict__.get("pbkv_arrival", self._arrivals + 1) <= self._closes.get(identity.workflow, 0):
            workflow.ended = workflow.ended or "closed"
        # The name predictions use, so that "(unnamed)" and "(other)" compare as what they are.
        return Call(workflow, agent, self._runtime.state.agent_names[agent], workflow.step, identity.final, self._runtime.era)

    def _identity(self, req: Any) -> CallIdentity | None:
        hints = req.kv_hints.actions if req.kv_hints is not None else ()
        try:
            return identity_of(req.sampling_params.custom_params, [(a.action_type, a.payload) for a in hints], req.session_id)
        except UsageError as error:
            self._runtime.counts["malformed"] += 1
            if (now := time.monotonic()) - self._warned > 10:
                self._warned = now
                log.warning("call %s is served but not attributed: %s", str(req.rid)[:64], error)
            return None

    def _count_hits(self, req: Any, records: list[NodeRecord]) -> None:
        """Nodes inside the cached prefix were read by this call."""
        now, end = time.monotonic_ns(), 0
        for record in records:
            end += record.tokens
            record.access_ns = now
            if end <= req.cached_tokens:
                record.hits += 1
                self._runtime.prefetch.used(record)

    # ---- the end -----------------------------------------------------------------------------------------------------------

    def finish(self, req: Any) -> None:
        """The call has ended, one way or another, and has released its KV. Reported before its workflow retires."""
        self._end(req, aborted=isinstance(req.finished_reason, FINISH_ABORT))

    def dropped(self, req: Any) -> None:
        """SGLang told the client of an abort outside the stream of outputs: waiting, retracted, or refused."""
        self._end(req, aborted=True)

    def _end(self, req: Any, *, aborted: bool) -> None:
        # An aborted call may come by twice: with the release of its KV and with the message to its client.
        if "pbkv_over" in req.__dict__:
            return
        req.pbkv_over = True
        call, earlier = self._call_of(req), req.__dict__.pop("pbkv_call", None)
        if call is None:
            if earlier is not None:
                return  # it began before a fault
            call = self._unrun(req) if aborted else self._begin(req)
        if self._runtime.signals:
            self._runtime.signals.ended(req, call)
        if self._runtime.telemetry:
            self._runtime.telemetry.call(self._report(req, call, aborted))
        if call.workflow is None:
            return
        if call.ran:
            self._runtime.state.end_call(call.workflow, final=call.final)
        elif call.final:
            self._runtime.state.close(call.workflow.name, "final")

    def _unrun(self, req: Any) -> Call:
        """A call that was aborted before it ran; what it would have been."""
        runtime, identity = self._runtime, self._identity(req)
        runtime.counts["calls"] += 1
        if identity is None:
            runtime.counts["unattributed"] += 1
            return Call(None, 0, "", 0, False, ran=False)
        state = runtime.state
        agent = state.agent_id(identity.agent)
        workflow = state.live.get(identity.workflow) or Workflow(identity.workflow, 0, state.now)
        return Call(workflow, agent, state.agent_names[agent], workflow.calls, identity.final, ran=False)

    def _report(self, req: Any, call: Call, aborted: bool) -> CallReport:
        times, now = req.time_stats, time.perf_counter()
        arrived, entered, first = times.scheduler_recv_time, times.forward_entry_time, times.prefill_finished_time
        node, page, pages = req.__dict__.get("pbkv_end", (0, 0, 0))
        return CallReport(
            call.workflow, call.agent_name, call.step, call.final, aborted, len(req.origin_input_ids),
            req.cached_tokens_device, req.cached_tokens_host + req.cached_tokens_storage, len(req.output_ids),
            _ms(arrived, entered or now), _ms(entered, first), _ms(arrived, first), _ms(arrived, now), node, page, pages,
            arrived or 0.0, now, max(getattr(req.sampling_params, "max_new_tokens", 0) or 0, len(req.output_ids)),
            req.__dict__.get("pbkv_arrival", 0),
        )


def _ms(start: float, end: float) -> float:
    """Milliseconds between two clock readings; 0 when either was never taken."""
    return max(0.0, (end - start) * 1e3) if start and end else 0.0
