"""Workflows, records and scores of one cache: the bookkeeping every engine shares. Pure logic: no tree, no I/O, time only as told.

All ranks feed it the same calls, closes and ticks in the same order and so reach the same state.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence

from pbkv.eviction.base import Policy
from pbkv.identity import CallIdentity
from pbkv.knobs import KnobSet
from pbkv.listener import Listener
from pbkv.predictor.base import END, Moment, Prediction, Predictor
from pbkv.reads import Reads, cell_of
from pbkv.record import OUTPUT, PROMPT, SHARED, Access, NodeRecord
from pbkv.workflow import Workflow

#: Live workflows kept; the longest idle one is retired to make room.
MAX_WORKFLOWS = 100_000
#: Distinct agent names told apart; later ones share one id.
MAX_AGENTS = 4096
#: Newest calls of a workflow's path that are kept.
MAX_PATH = 256
UNNAMED, OTHER = "(unnamed)", "(other)"


class CacheState:
    """Live workflows by name, and the scores of the records they touch.

    `reads` is what the policy may have been given too. `scoring` False leaves out predictions and scores, for an engine where nothing reads
    them. `timer` measures predictions, for events.
    """

    def __init__(
        self, knobs: KnobSet, predictor: Predictor, policy: Policy, reads: Reads, listener: Listener, *,
        max_workflows: int = MAX_WORKFLOWS, timer: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.knobs, self.predictor, self.policy, self.listener = knobs, predictor, policy, listener
        self.reads = reads
        self.scoring = True
        self.live: OrderedDict[str, Workflow] = OrderedDict()  # longest without a call first
        self.agents: dict[str, int] = {}
        self.agent_names: list[str] = []
        self.now = 0.0
        #: Workflows to be predicted together, and whether at the reply of their newest call; None = each is predicted at once.
        self.due: dict[Workflow, bool] | None = None
        self._max_workflows, self._timer = max_workflows, timer
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
        if self.scoring:
            # After a call that says it is the last there is nothing to predict: its nodes are not expected to be read again.
            made = self._predict(workflow, over=identity.final)
            if made and not self.policy.structural:  # else what this call reads comes first, see `touch`
                self._rescore(workflow)
        return workflow, agent

    def _predict(self, workflow: Workflow, *, over: bool = False, reply: bool = False) -> bool:
        """False when it is put off."""
        if self.due is not None:
            self.due.pop(workflow, None)
            if not over:
                self.due[workflow] = reply
                return False
        started = self._timer()
        prediction = Prediction() if over else self.predictor.predict(_moment(workflow, reply))
        self._take(workflow, prediction, self.predictor.version, self._timer() - started)
        return True

    def _take(self, workflow: Workflow, prediction: Prediction, version: int, took_ns: int) -> None:
        workflow.prediction = prediction
        self._plan(workflow)
        self.listener.predicted(workflow, version, took_ns)

    def take_due(self) -> list[tuple[Workflow, Moment]]:
        """What was put off, in the order of the newest reason to predict; the caller answers each with `answered`."""
        due = [(workflow, _moment(workflow, reply)) for workflow, reply in (self.due or {}).items()]
        if self.due:
            self.due.clear()
        return due

    def answered(self, workflow: Workflow, prediction: Prediction, version: int, took_ns: int) -> None:
        """The prediction of a workflow that was due. It must be the same on all ranks, bit for bit: scores are made of it."""
        self._take(workflow, prediction, version, took_ns)
        self._rescore(workflow)

    def heard(self, workflow: Workflow) -> None:
        """The prompt of the newest call has been read to its end, later than the call began: it says more than was known then."""
        if self.scoring and self.due is not None and not workflow.ended:
            self._predict(workflow)

    def _plan(self, workflow: Workflow) -> None:
        workflow.plan = self.policy.plan(workflow, self.knobs.number("gamma"), int(self.knobs["k"]))

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

    def touch(
        self, workflow: Workflow, agent: int, path: Sequence[NodeRecord], *, step: int | None = None, output: bool = False,
    ) -> None:
        """Call `step` (default: the newest) of `agent` read or wrote these nodes, root first; it may be told more than once.

        `output`: nodes new on the path hold what the call generated.
        """
        if workflow.ended and not workflow.running:
            return  # retired meanwhile: a late checkpoint must not bring its nodes back to life
        step = workflow.step if step is None else step
        first = step > workflow.seen
        if first:
            workflow.seen = step
            if self.scoring and self.policy.structural:
                self._learn(workflow, agent, path, step)
            workflow.last_call_of[agent] = step
        made = self._move(workflow, agent, path, step, output)
        if first and self.scoring and self.policy.structural:
            self._rescore(workflow, set(made))

    def _learn(self, workflow: Workflow, agent: int, path: Sequence[NodeRecord], step: int) -> None:
        """What the call read of what the workflow had, and what it went around. Tens of calls teach a layout, so a policy that does not ask
        need not pay for one that may come.
        """
        read: dict[Access, int] = {}
        for record in path:
            access = record.live.get(workflow)
            if access is not None:
                read[access] = read.get(access, 0) + 1
        for access in workflow.accesses:
            hits = read.get(access, 0)
            self.reads.learn(cell_of(workflow, access, agent, step - 1), access.creator, agent, hits, len(access.records) - hits)

    def _move(self, workflow: Workflow, agent: int, path: Sequence[NodeRecord], step: int, output: bool) -> list[Access]:
        """Give each node the history that this access makes; returns these histories, whose scores are made."""
        groups: dict[Access | int, list[NodeRecord]] = {}
        number = workflow.name_id
        for record in path:
            record.last_workflow = number
            before = record.live.get(workflow)
            if before is None:
                key = SHARED if record.touched or record.anonymous else OUTPUT if output else PROMPT
            elif before.agents.get(agent) == step:
                continue
            else:
                key = before
            group = groups.get(key)
            if group is None:
                groups[key] = [record]
            else:
                group.append(record)
        made: list[Access] = []
        for key, records in groups.items():
            if isinstance(key, int):
                made.append(self._begin_history(workflow, agent, key, step, records))
            elif len(records) == len(key.records):
                made.append(self._go_on(workflow, agent, key, step))
            else:
                made.append(self._part(workflow, agent, key, step, records))
            if self.policy.follows:
                for record in records:
                    self.policy.touched(record, agent)
        return made

    def _begin_history(self, workflow: Workflow, agent: int, kind: int, step: int, records: list[NodeRecord]) -> Access:
        """These nodes had no history in the workflow."""
        access = self._scored(workflow, Access(agent, kind, step))
        for record in records:
            record.shared = record.shared or record.touched
            record.touched = True
            record.live[workflow] = access
            access.records[record] = None
            record.score += access.score
            record.value += access.value
        if self.scoring:
            self.listener.rescored(records, False)
        return access

    def _go_on(self, workflow: Workflow, agent: int, access: Access, step: int) -> Access:
        """All nodes with this history were accessed: it goes on, as the newest one."""
        del workflow.accesses[access]
        workflow.accesses[access] = None
        access.agents[agent] = step
        access.last = max(access.last, step)  # calls of one workflow may overlap
        if self.scoring:
            self._account(workflow, access)
        return access

    def _part(self, workflow: Workflow, agent: int, before: Access, step: int, records: list[NodeRecord]) -> Access:
        """Some of the nodes with a history were accessed and part from the others."""
        access = self._scored(workflow, before.read_by(agent, step))
        change, gain = access.score - before.score, access.value - before.value
        for record in records:
            del before.records[record]
            record.live[workflow] = access
            access.records[record] = None
            record.score += change
            record.value += gain
        if self.scoring:
            self.listener.rescored(records, change < 0)
        return access

    def _scored(self, workflow: Workflow, access: Access) -> Access:
        workflow.accesses[access] = None
        if self.scoring:
            access.score, access.value = self.policy.score(workflow, access)
        return access

    def touch_anonymous(self, path: Iterable[NodeRecord]) -> None:
        """A call without identity used these nodes: they have no end, so they never count as retired."""
        for record in path:
            record.anonymous = True

    def end_call(self, workflow: Workflow, *, final: bool = False, text: object = None) -> None:
        """A call has ended; the workflow retires with its last running call once its end is known. `text` = signal of its output."""
        workflow.running -= 1
        workflow.last_call = self.now
        if text is not None:
            workflow.text = text
        # `live` is in order of last calls, ends included, or a long call would hide idle workflows behind it from `tick`.
        self.live.move_to_end(workflow.name)
        if final:
            workflow.ended = workflow.ended or "final"
        if workflow.ended and workflow.running <= 0:
            self._retire(workflow, workflow.ended)
        elif self.scoring and self.predictor.at_reply and not workflow.ended and self._predict(workflow, reply=True):
            self._rescore(workflow)

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
        idle: list[Workflow] = []
        for workflow in self.live.values():
            if self.now - workflow.last_call < limit:
                break
            if not workflow.running:
                idle.append(workflow)
        for workflow in idle:
            self._retire(workflow, "idle")

    def _retire(self, workflow: Workflow, reason: str) -> None:
        workflow.ended = reason
        self.live.pop(workflow.name, None)
        if self.due:
            self.due.pop(workflow, None)
        if workflow.path and reason != "aborted":
            self.predictor.observe(workflow.path, END)
        gone: list[NodeRecord] = []
        for access in workflow.accesses:
            for record in access.records:
                del record.live[workflow]
                record.score -= access.score
                record.value -= access.value
                if record.retired:
                    gone.append(record)
                self.listener.rekeyed(record)
            self.listener.rescored(access.records, False)
            access.records = {}
        workflow.accesses.clear()
        self.policy.ended(workflow)
        self.listener.retired(workflow, reason, gone)

    # ---- scores ------------------------------------------------------------------------------------------------------------

    def _rescore(self, workflow: Workflow, but: Collection[Access] = ()) -> None:
        """Scores anew, but for histories that have just got theirs."""
        for access in workflow.accesses:
            if access not in but:
                self._account(workflow, access)

    def _account(self, workflow: Workflow, access: Access) -> None:
        score, value = self.policy.score(workflow, access)
        change, gain = score - access.score, value - access.value
        if not change and not gain:
            return
        access.score, access.value = score, value
        for record in access.records:
            record.score += change
            record.value += gain
        self.listener.rescored(access.records, change < 0)

    def rescore(self) -> None:
        """After a change of gamma or k: every score anew from the stored predictions."""
        for workflow in self.live.values():
            self._plan(workflow)
            self._rescore(workflow)

    def use(self, policy: Policy) -> None:
        """Another policy, on the same tree and predictions: nothing that was learned is lost."""
        self.policy = policy
        if policy.follows:
            for workflow in self.live.values():
                for access in workflow.accesses:
                    for record in access.records:
                        for agent in access.agents:
                            policy.touched(record, agent)
        self.rescore()

    def score_from_now_on(self, wanted: bool) -> None:
        """Begin or cease to predict and score; workflows already live are predicted when it begins."""
        begins, self.scoring = wanted and not self.scoring, wanted
        if begins:
            for workflow in self.live.values():
                if self._predict(workflow):
                    self._rescore(workflow)

    # ---- tree --------------------------------------------------------------------------------------------------------------

    def split(self, prefix: NodeRecord, suffix: NodeRecord) -> None:
        """`prefix` is the new node above `suffix`: whoever touched the whole touched the part."""
        prefix.touched, prefix.shared, prefix.anonymous, prefix.hits = suffix.touched, suffix.shared, suffix.anonymous, suffix.hits
        prefix.score, prefix.value = suffix.score, suffix.value
        prefix.created_ns, prefix.access_ns = suffix.created_ns, suffix.access_ns
        prefix.last_workflow, prefix.evicted_step = suffix.last_workflow, suffix.evicted_step
        for workflow, access in suffix.live.items():
            prefix.live[workflow] = access
            access.records[prefix] = None
        if self.policy.follows:
            self.policy.split(prefix, suffix)

    def forget(self, record: NodeRecord) -> None:
        """The node left the tree."""
        for workflow, access in record.live.items():
            _leave(workflow, record, access)
        record.live.clear()
        if self.policy.follows:
            self.policy.forget(record)

    def reset(self) -> None:
        """The tree was flushed; workflows go on, their nodes are gone."""
        for workflow in self.live.values():
            for record in workflow.records:
                self.forget(record)


def _moment(workflow: Workflow, reply: bool) -> Moment:
    return Moment(workflow.name, workflow.path, workflow.calls, reply, workflow.text)


def _leave(workflow: Workflow, record: NodeRecord, access: Access) -> None:
    del access.records[record]
    if not access.records:
        del workflow.accesses[access]
