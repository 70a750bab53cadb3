"""First use: expected discounted time to the first read of a node, by whoever the prompts' layout says will read it.

Three changes to the paper's score, each measured in docs/reproduction.md: the first passage instead of the sum of visits (a node read at
the next step and again later is not worth twice as much: it need only be there once); structural access instead of "has accessed"
(`pbkv.reads`), which also lets nodes that calls go around fall behind; and the paths of queued calls, certain to be read, last of all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import cast

from pbkv.eviction.base import Key, Policy
from pbkv.reads import Reads
from pbkv.record import SCORE_ONE, Access, NodeRecord
from pbkv.workflow import Workflow

#: Scores below it count as nothing: the node is as dead as a retired one. 2^-6 of one certain read.
STALE = SCORE_ONE >> 6
#: Scores are told apart to 2^-20. Below that the turn of the prediction is in them: of two workflows that are equally likely to read
#: their nodes equally soon, the one whose call came first will be back first, so it is kept. (The count wraps; then a few ties go wrong.)
_TURN_BITS = 20
LEVELS = SCORE_ONE >> _TURN_BITS
#: Least probability of an agent at a step for it to be considered.
_LEAST = 1e-3
#: Worth of a read after the horizon, as a share of one at its end. Without it a node that is next read just beyond the horizon would be
#: as dead as one that no agent reads any more.
TAIL = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """A prediction as rows over its agents: `rows[k]` = s^(k) P^(k) in the order of `agents`, `weights[k]` = gamma^k.

    `beyond` = TAIL gamma^K s^(K+1): what a read after the horizon is worth. `turn` = number of the prediction.
    """

    agents: tuple[int, ...]
    rows: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    beyond: float
    turn: int


class FirstUse(Policy):
    """Held by queued calls last; before them by ascending first-use score; what is stale goes with what is retired, in order of recency.

    `stale`, `structural_reads`, `first_passage` and `hold` are the parts, for ablations.
    """

    name = "first_use"
    meaning = "retired and stale first, then the least expected discounted first use; paths of queued calls last"
    by_score = True
    discounts = True
    uses_holds = True
    structural = True

    def __init__(
        self, reads: Reads, *, stale: bool = True, structural_reads: bool = True, first_passage: bool = True, hold: bool = True,
    ) -> None:
        self._reads = reads
        self._turn = 0
        self._stale, self._structural_reads, self._first_passage, self._hold = stale, structural_reads, first_passage, hold

    def plan(self, workflow: Workflow, gamma: float, k: int) -> Plan | None:
        steps = workflow.prediction.visits[:k]
        if not steps:
            return None
        agents = tuple(dict.fromkeys(agent for step in steps for agent, p in step.items() if p >= _LEAST))
        rows = tuple(tuple(step.get(agent, 0.0) for agent in agents) for step in steps)
        beyond = TAIL * gamma ** len(rows) * workflow.prediction.survival(len(rows) + 1)
        self._turn += 1
        return Plan(agents, rows, tuple(gamma**n for n in range(len(rows))), beyond, self._turn)

    def score(self, workflow: Workflow, access: Access) -> tuple[int, int]:
        """sum_k gamma^(k-1) F_k with F_k = q_k prod_{j<k} (1 - q_j) and q_k = sum_a s^(k) P^(k)[a] r(a): the steps are taken as
        independent, which is exact for certain predictions. Beyond the horizon the workflow goes on with s^(K+1), and the agent most
        likely to read the node is called some time.
        """
        plan = cast("Plan | None", workflow.plan)
        if plan is None:
            return 0, 0
        # Rows go over the plan's agents, which come first; the others matter beyond the horizon alone.
        agents = plan.agents
        others = [agent for agent in access.agents if agent not in agents]
        reads = self._readers(workflow, access, (*agents, *others) if others else agents)
        total, alive, following = 0.0, 1.0, -1.0
        for weight, row in zip(plan.weights, plan.rows, strict=True):
            q = sum(map(mul, row, reads))
            if following < 0.0:
                following = q
            total += weight * alive * q
            if self._first_passage:
                alive *= max(0.0, 1.0 - q)
        if plan.beyond and alive > 0.0:
            total += plan.beyond * alive * max(reads)
        if total <= 0.0:
            return 0, round(following * SCORE_ONE)
        return (round(total * LEVELS) << _TURN_BITS) - plan.turn % (1 << _TURN_BITS), round(following * SCORE_ONE)

    def _readers(self, workflow: Workflow, access: Access, agents: Sequence[int]) -> list[float]:
        if self._structural_reads:
            return self._reads.of(workflow, access, agents, workflow.calls - 1)
        return [1.0 if agent in access.agents else 0.0 for agent in agents]

    def is_dead(self, record: NodeRecord) -> bool:
        if record.holds and self._hold:
            return False
        return record.retired or (self._stale and record.score < STALE and not record.anonymous)

    def level(self, record: NodeRecord) -> Key:
        """Two nodes of one level are told apart by whose call came first."""
        tier, score, _ = self.key(record)
        return (tier, (int(score) + (1 << _TURN_BITS) - 1) >> _TURN_BITS)

    def key(self, record: NodeRecord) -> Key:
        if record.holds and self._hold:
            return (2.0, -next(iter(record.holds)), record.node.last_access_time)
        # As `is_dead` says it, without the call: this is asked for at every change of a score.
        if record.anonymous or (record.score >= STALE or not self._stale) and (record.live or not record.touched):
            return (1.0, record.score, record.node.last_access_time)
        return (0.0, 0, record.node.last_access_time)
