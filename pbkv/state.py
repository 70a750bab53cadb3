"""Workflows, records and scores of one cache: the bookkeeping every engine shares. Pure logic: no clock, no tree, no I/O.

All ranks feed it the same calls, closes and ticks in the same order and so reach the same state.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol

from pbkv.identity import CallIdentity
from pbkv.knobs import KnobSet
from pbkv.predictor.base import END, Moment, Prediction, Predictor
from pbkv.record import Access, NodeRecord
from pbkv.score import dot, next_vector, reuse_vector
from pbkv.workflow import Workflow

#: Live workflows kept; the longest idle one is retired to make room.
MAX_WORKFLOWS = 100_000
#: Distinct agent names told apart; later ones share one id.
MAX_AGENTS = 4096
#: Newest calls of a workflow's path that are kept.
MAX_PATH = 256
UNNAMED, OTHER = "(unnamed)", "(other)"


class Listener(Protocol):
    """Told of everything that concerns queues and events. `fell`: the record's eviction key may have become smaller."""

    def rescored(self, record: NodeRecord, fell: bool) -> None: ...

    def predicted(self, workflow: Workflow) -> None: ...

    def started(self, workflow: Workflow) -> None: ...

    def retired(self, workflow: Workflow, reason: str, records: list[NodeRecord]) -> None:
        """`records` are those that became retired with it."""
        ...


class CacheState:
    """Live workflows by name, and the scores of the records they touch."""

    def __init__(self, knobs: KnobSet, predictor: Predictor, listener: Listener, *, max_workflows: int = MAX_WORKFLOWS) -> None:
        self.knobs, self.predictor, self.listener = knobs, predictor, listener
        self.live: OrderedDict[str, Workflow] = OrderedDict()  # longest without a call first
        self.agents: dict[str, int] = {}
        self.agent_names: list[str] = []
        self.now = 0.0
        self._max_workflows = max_workflows
        self._workflow_ids = 0

    # ---- calls -------------------------------------------------------------------------------------------------------------

    def agent_id(self, name: str) -> int:
        """Small id of an agent name; the table is bounded."""
        name = name or UNNAMED
        known = self.agents.get(name)
        if known is not None:
            return known
        if len(self.agents) >= MAX_AGENTS and name != OTHER:
            return self.agent_id(OTHER)
        self.agents[name] = len(self.agent_names)
        self.agent_names.append(name)
        return self.agents[name]

    def begin_call(self, identity: CallIdentity) -> tuple[Workflow, int]:
        """A call starts its prefill: learn the transition, predict what follows. Returns its workflow and agent id."""
        workflow = self.live.get(identity.workflow) or self._start(identity.workflow)
        agent = self.agent_id(identity.agent)
        self.predictor.observe(workflow.path, agent)
        workflow.path.append(agent)
        if len(workflow.path) > MAX_PATH:
            del workflow.path[0]
        workflow.calls += 1
        workflow.running += 1
        workflow.last_call = self.now
        self.live.move_to_end(workflow.name)
        # After a call that says it is the last there is nothing to predict: its nodes are not expected to be read again.
        moment = Moment(workflow.name, workflow.path, workflow.calls)
        self._set_prediction(workflow, Prediction() if identity.final else self.predictor.predict(moment))
        self.listener.predicted(workflow)
        return workflow, agent

    def _start(self, name: str) -> Workflow:
        while len(self.live) >= self._max_workflows:
            oldest = next((w for w in self.live.values() if not w.running), None)
            if oldest is None:
                break
            self._retire(oldest, "idle")
        self._workflow_ids += 1
        workflow = self.live[name] = Workflow(name, self._workflow_ids, self.now)
        self.listener.started(workflow)
        return workflow

    def touch(self, workflow: Workflow, agent: int, path: Iterable[NodeRecord]) -> None:
        """The call read or wrote these nodes: its agent enters A_w(c) of each."""
        for record in path:
            if workflow.ended and not workflow.running:
                return  # retired meanwhile: a late checkpoint must not bring its nodes back to life
            access = record.live.get(workflow)
            if access is None:
                access = record.live[workflow] = Access(set())
                workflow.records[record] = None
                record.touched = True
            record.last_workflow = workflow.name_id
            if agent not in access.agents:
                access.agents.add(agent)
                self._account(record, access, workflow)

    def touch_anonymous(self, path: Iterable[NodeRecord]) -> None:
        """A call without identity used these nodes: they have no end, so they never count as retired."""
        for record in path:
            record.anonymous = True

    def end_call(self, workflow: Workflow, *, final: bool = False) -> None:
        """A call has ended; the workflow retires with its last running call once its end is known."""
        workflow.running -= 1
        workflow.last_call = self.now
        # `live` is in order of last calls, ends included, or a long call would hide idle workflows behind it from `tick`.
        self.live.move_to_end(workflow.name)
        if final:
            workflow.ended = workflow.ended or "final"
        if workflow.ended and workflow.running <= 0:
            self._retire(workflow, workflow.ended)

    def close(self, name: str, reason: str = "closed") -> bool:
        """The workflow is over; False when no such workflow is live."""
        workflow = self.live.get(name)
        if workflow is None:
            return False
        workflow.ended = reason
        if workflow.running <= 0:
            self._retire(workflow, reason)
        return True

    def tick(self, now: float) -> None:
        """Move the clock (seconds, from one source for all ranks) and retire workflows idle for longer than `retire_idle_s`."""
        self.now = max(self.now, now)
        limit = self.knobs.number("retire_idle_s")
        for workflow in list(self.live.values()):
            if self.now - workflow.last_call < limit:
                break
            if not workflow.running:
                self._retire(workflow, "idle")

    def _retire(self, workflow: Workflow, reason: str) -> None:
        workflow.ended = reason
        self.live.pop(workflow.name, None)
        if workflow.path and reason != "aborted":
            self.predictor.observe(workflow.path, END)
        gone: list[NodeRecord] = []
        for record in workflow.records:
            access = record.live.pop(workflow)
            record.score -= access.score
            record.value -= access.value
            if record.retired:
                gone.append(record)
            self.listener.rescored(record, True)
        workflow.records.clear()
        self.listener.retired(workflow, reason, gone)

    # ---- scores ------------------------------------------------------------------------------------------------------------

    def _set_prediction(self, workflow: Workflow, prediction: Prediction) -> None:
        workflow.prediction = prediction
        workflow.reuse = reuse_vector(prediction, self.knobs.number("gamma"), int(self.knobs["k"]))
        workflow.next = next_vector(prediction)
        for record in workflow.records:
            self._account(record, record.live[workflow], workflow)

    def _account(self, record: NodeRecord, access: Access, workflow: Workflow) -> None:
        score, value = dot(access.agents, workflow.reuse), dot(access.agents, workflow.next)
        change = score - access.score
        if not change and value == access.value:
            return
        record.score += change
        record.value += value - access.value
        access.score, access.value = score, value
        self.listener.rescored(record, change < 0)

    def rescore(self) -> None:
        """After a change of gamma or k: every U_w anew from the stored predictions."""
        for workflow in self.live.values():
            self._set_prediction(workflow, workflow.prediction)

    # ---- tree --------------------------------------------------------------------------------------------------------------

    def split(self, prefix: NodeRecord, suffix: NodeRecord) -> None:
        """`prefix` is the new node above `suffix`: whoever touched the whole touched the part."""
        prefix.touched, prefix.anonymous, prefix.hits = suffix.touched, suffix.anonymous, suffix.hits
        prefix.score, prefix.value = suffix.score, suffix.value
        prefix.created_ns, prefix.access_ns = suffix.created_ns, suffix.access_ns
        prefix.last_workflow, prefix.evicted_step = suffix.last_workflow, suffix.evicted_step
        for workflow, access in suffix.live.items():
            prefix.live[workflow] = Access(set(access.agents), access.score, access.value)
            workflow.records[prefix] = None

    def forget(self, record: NodeRecord) -> None:
        """The node left the tree."""
        for workflow in record.live:
            workflow.records.pop(record, None)
        record.live.clear()

    def reset(self) -> None:
        """The tree was flushed; workflows go on, their nodes are gone."""
        for workflow in self.live.values():
            for record in list(workflow.records):
                self.forget(record)
