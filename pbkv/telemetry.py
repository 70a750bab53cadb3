"""From objects to records: the only place that knows both the policy's objects and the event schema. Rank 0 has one, others none."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pbkv.events.schema import (
    BY_NAME,
    CALL_STATUS,
    DECISIONS,
    MODES,
    PHASES,
    PREFETCH_RESULTS,
    REASONS,
    SOURCES,
    WORKFLOW_EVENTS,
    Namespace,
)
from pbkv.events.writer import EventWriter
from pbkv.knobs import Change
from pbkv.record import SCORE_ONE, NodeRecord
from pbkv.workflow import Workflow

#: Likely agents written per horizon of a prediction.
TOP_AGENTS = 3
#: Scores written on change of rank per scheduler step; the periodic snapshot carries the rest.
SCORES_PER_STEP = 256
TIERS = {name: code for code, name in enumerate(BY_NAME["eviction"].field("from_tier").values)}
_REASON = {name: code for code, name in enumerate(REASONS)}
_EVENT = {name: code for code, name in enumerate(WORKFLOW_EVENTS)}
_DECISION = {name: code for code, name in enumerate(DECISIONS)}
_PHASE = {name: code for code, name in enumerate(PHASES)}
_RESULT = {name: code for code, name in enumerate(PREFETCH_RESULTS)}
_STATUS = {name: code for code, name in enumerate(CALL_STATUS)}
_SOURCE = {name: code for code, name in enumerate(SOURCES)}
MODE = {name: code for code, name in enumerate(MODES)}

_U32 = 0xFFFF_FFFF
_U16 = 0xFFFF


@dataclass(frozen=True)
class CallReport:
    """One ended call, as an engine reports it. Tokens and milliseconds."""

    workflow: Workflow | None
    agent: str
    step: int
    final: bool
    aborted: bool
    prompt_tokens: int
    device_hit_tokens: int
    host_hit_tokens: int
    output_tokens: int
    queue_ms: float
    prefill_ms: float
    ttft_ms: float
    e2e_ms: float
    end_node: int
    end_page: int
    pages: int
    #: Seconds of the server's monotonic clock.
    arrived_s: float = 0.0
    ended_s: float = 0.0
    max_tokens: int = 0
    #: Position by order of arrival at the server, from 1; 0 = not known.
    place: int = 0


class Telemetry:
    """Writes every kind of record. `tier_of(record)` gives "none", "device", "host" or "both"; `parent_of` the parent's node id."""

    def __init__(
        self, writer: EventWriter, tier_of: Callable[[NodeRecord], str], parent_of: Callable[[NodeRecord], int], agent_names: list[str],
    ) -> None:
        self.writer = writer
        self._tier_of, self._parent_of, self._agents = tier_of, parent_of, agent_names
        self._changed: dict[NodeRecord, None] = {}
        emit = writer.emit
        self._call, self._page, self._workflow = emit["call"], emit["page"], emit["workflow"]
        self._prediction, self._node_score, self._eviction = emit["prediction"], emit["node_score"], emit["eviction"]
        self._prefetch, self._window, self._occupancy = emit["prefetch"], emit["pcie_window"], emit["occupancy"]
        self._batch, self._knob, self._setting = emit["batch"], emit["knob"], emit["setting"]
        self.now_ns = time.monotonic_ns
        self.now_s = time.monotonic
        self.arrivals: Callable[[], int] = int  # place of the newest call; 0 = nobody counts

    def name_of(self, workflow: Workflow | None) -> int:
        """Id of a workflow's name; 0 for a call without one."""
        return self.writer.intern(Namespace.WORKFLOW, workflow.name) if workflow else 0

    def agent(self, agent: int) -> int:
        """Id of an agent's name."""
        return self.writer.intern(Namespace.AGENT, self._agents[agent])

    def call(self, report: CallReport) -> None:
        """A call ended."""
        prompt = report.prompt_tokens
        self._call(
            self.name_of(report.workflow), self.writer.intern(Namespace.AGENT, report.agent), report.step & _U32,
            report.workflow is not None, report.final, _STATUS["aborted" if report.aborted else "done"], prompt, report.device_hit_tokens,
            report.host_hit_tokens, max(0, prompt - report.device_hit_tokens - report.host_hit_tokens), report.output_tokens,
            report.queue_ms, report.prefill_ms, report.ttft_ms, report.e2e_ms, report.end_node, report.end_page, report.pages,
            report.arrived_s, report.ended_s, min(report.max_tokens, _U32), report.place & _U32,
        )

    def page(self, page: int, parent: int, depth: int) -> None:
        """A page seen for the first time."""
        self._page(page, parent, depth)

    def workflow(self, workflow: Workflow, event: str, reason: str = "none", device_tokens: int = 0, host_tokens: int = 0) -> None:
        """A workflow started, ended or retired."""
        self._workflow(self.name_of(workflow), _EVENT[event], _REASON[reason], workflow.calls, device_tokens, host_tokens, self.now_s())

    def prediction(self, workflow: Workflow, version: int, latency_us: float) -> None:
        """The likeliest agents of each horizon. Position 0 is END (agent id 0) when that is likelier than any agent."""
        name, step = self.name_of(workflow), workflow.step
        for k, visits in enumerate(workflow.prediction.visits, start=1):
            survival = workflow.prediction.survival(k)
            if survival <= 1e-6:
                return
            end = workflow.prediction.ends[k - 1]
            top = sorted(visits.items(), key=lambda item: (-item[1], item[0]))[:TOP_AGENTS]
            rows = [(self.agent(a), p) for a, p in top]
            if not top or end > top[0][1]:
                rows = [(0, end), *rows]
            for position, (agent, p) in enumerate(rows):
                shares = min(1.0, p / survival), min(1.0, end / survival)
                self._prediction(name, step, k, position, agent, *shares, survival, version, latency_us)

    def changed(self, record: NodeRecord) -> None:
        """The record's place in the order changed; written once at the end of the step."""
        if len(self._changed) < SCORES_PER_STEP:
            self._changed[record] = None

    def forget(self, record: NodeRecord) -> None:
        """The node left the tree before its change was written."""
        self._changed.pop(record, None)

    def reset(self) -> None:
        """The tree was flushed."""
        self._changed.clear()

    def node_score(self, record: NodeRecord, *, snapshot: bool, workflow: int = 0) -> None:
        """One node's score now; `workflow` = name id of the one that touched it last."""
        self._node_score(
            record.node_id, self._parent_of(record), record.tokens, TIERS[self._tier_of(record)], record.score / SCORE_ONE,
            record.value / SCORE_ONE, min(len(record.live), _U16), record.retired, int(record.last_access), record.hits, snapshot,
            record.page, workflow,
        )

    def eviction(
        self, record: NodeRecord, from_tier: str, to_tier: str, decision: str, leaves: int, decision_ns: int, workflow: int,
    ) -> None:
        """A victim left a tier; `workflow` = name id of the one that touched it last."""
        now = self.now_ns()
        self._eviction(
            record.node_id, record.tokens, TIERS[from_tier], TIERS[to_tier], _DECISION[decision], record.score / SCORE_ONE,
            (now - record.created_ns) / 1e6, (now - record.access_ns) / 1e6, record.hits, leaves, min(decision_ns, _U32), workflow,
        )

    def prefetch(self, number: int, phase: str, result: str, record: NodeRecord | None, tokens: int, size: int) -> None:
        """One row of a prefetch; number 0 = skipped."""
        value = record.value / SCORE_ONE if record else 0.0
        best = max(record.live.items(), key=lambda item: item[1].value, default=(None, None))[0] if record else None
        self._prefetch(number, _PHASE[phase], _RESULT[result], record.node_id if record else 0, tokens, size, value, self.name_of(best))

    def window(self, start_ns: int, length_us: float, capacity: int, h2d: int, d2h: int) -> None:
        """An idle window of the link ended."""
        self._window(start_ns, length_us, capacity, h2d, d2h)

    def occupancy(self, *fields: int) -> None:
        """Tokens by state, in the order of the schema."""
        self._occupancy(*fields)

    def batch(self, mode: str, requests: int, tokens: int, duration_us: float) -> None:
        """A scheduler step that ran a batch."""
        self._batch(MODE[mode], requests, tokens, duration_us)

    def knob(self, change: Change) -> None:
        """An applied change of a knob."""
        intern = self.writer.intern
        self._knob(
            change.version, intern(Namespace.KNOB, change.name), intern(Namespace.KNOB, f"{change.old}"),
            intern(Namespace.KNOB, f"{change.new}"), intern(Namespace.KNOB, change.actor), _SOURCE[change.source],
            intern(Namespace.KNOB, change.reason), self.now_s(), self.arrivals() & _U32,
        )

    def settings(self, facts: Mapping[str, str]) -> None:
        """What the server is, one row per fact."""
        intern = self.writer.intern
        now = self.now_s()
        for name, value in facts.items():
            self._setting(intern(Namespace.KNOB, name), intern(Namespace.KNOB, value), now)

    def end_step(self, step: int) -> None:
        """Write the changes of rank of this step and send everything as one message."""
        for record in self._changed:
            self.node_score(record, snapshot=False)
        self._changed.clear()
        self.writer.flush(step)
