"""KVFlow (arXiv 2507.07400), written from the paper: steps to execution (STE) of agents rank the fixed prefixes of their prompts.

For each live workflow an agent's STE is the first step at which the prediction names it as the likeliest; on a static graph that is
the distance in the graph. An agent's STE is the least over workflows, a node's the least over the agents that read it.
"""

from collections.abc import Callable

from pbkv.eviction.base import Key, Policy
from pbkv.knobs import K_MAX
from pbkv.record import NodeRecord
from pbkv.workflow import Workflow

#: STE of an agent that is not expected.
NEVER = K_MAX + 1


class KvFlow(Policy):
    """Dynamic suffixes first, least recently used; then fixed prefixes by descending STE.

    A prefix is fixed when more than one workflow has read it. `rekeyed` is told of nodes whose place became earlier.
    """

    name = "kvflow"
    meaning = "KVFlow: dynamic suffixes first, then fixed prefixes by steps to execution"
    by_score = True
    follows = True

    def __init__(self, rekeyed: Callable[[NodeRecord], None]) -> None:
        self._rekeyed = rekeyed
        self._agents: dict[NodeRecord, set[int]] = {}
        self._nodes: dict[int, dict[NodeRecord, None]] = {}
        self._plans: dict[Workflow, dict[int, int]] = {}
        self._counts: dict[int, list[int]] = {}  # agent -> live workflows by STE

    def plan(self, workflow: Workflow, gamma: float, k: int) -> object:
        self._replace(workflow, steps_to_execution(workflow))
        return super().plan(workflow, gamma, k)

    def ended(self, workflow: Workflow) -> None:
        self._replace(workflow, {})
        del self._plans[workflow]

    def _replace(self, workflow: Workflow, steps: dict[int, int]) -> None:
        changed: set[int] = set()
        for plan, delta in ((self._plans.get(workflow, {}), -1), (steps, 1)):
            for agent, ste in plan.items():
                self._counts.setdefault(agent, [0] * (NEVER + 1))[ste] += delta
                changed.add(agent)
        self._plans[workflow] = steps
        for agent in changed:
            for record in self._nodes.get(agent, ()):
                self._rekeyed(record)

    def ste(self, record: NodeRecord) -> int:
        """Steps to execution of a node, from 1; NEVER = nobody is expected to read it."""
        return min((self._least(agent) for agent in self._agents.get(record, ())), default=NEVER)

    def _least(self, agent: int) -> int:
        counts = self._counts.get(agent, ())
        return next((ste for ste, n in enumerate(counts) if n), NEVER)

    def touched(self, record: NodeRecord, agent: int) -> None:
        self._agents.setdefault(record, set()).add(agent)
        if record.shared:
            for reader in self._agents[record]:
                self._nodes.setdefault(reader, {})[record] = None

    def split(self, prefix: NodeRecord, suffix: NodeRecord) -> None:
        for agent in self._agents.get(suffix, ()):
            self.touched(prefix, agent)

    def forget(self, record: NodeRecord) -> None:
        for agent in self._agents.pop(record, ()):
            self._nodes.get(agent, {}).pop(record, None)

    def key(self, record: NodeRecord) -> Key:
        if record.shared:
            return (1.0, NEVER - self.ste(record), record.node.last_access_time)
        return (0.0, 0, record.node.last_access_time)


class KvFlowAll(KvFlow):
    """The generous variant: private context of a workflow is ranked by its own agents' STE as well."""

    name = "kvflow_all"
    meaning = "KVFlow, generous: private context is ranked by steps to execution too"

    def plan(self, workflow: Workflow, gamma: float, k: int) -> object:
        plan = super().plan(workflow, gamma, k)
        for record in workflow.records:
            self._rekeyed(record)
        return plan

    def key(self, record: NodeRecord) -> Key:
        ste = NEVER
        if record.shared:
            ste = self.ste(record)
        else:
            for workflow, access in record.live.items():
                plan = self._plans.get(workflow, {})
                ste = min(ste, min((plan.get(agent, NEVER) for agent in access.agents), default=NEVER))
        return (1.0, NEVER - ste, record.node.last_access_time)


def steps_to_execution(workflow: Workflow) -> dict[int, int]:
    """Agent -> first step at which it is the likeliest, of those the workflow is expected to reach."""
    steps: dict[int, int] = {}
    for k, visits in enumerate(workflow.prediction.visits, start=1):
        p, agent = max(((p, -agent) for agent, p in visits.items()), default=(0.0, 0))
        if p > 0.0:
            steps.setdefault(-agent, k)
    return steps
