"""Claim checking as in HoVer: a Decomposer splits the claim, Scouts look facts up, an Analyzer sends them out again, a Verifier decides.

The first round shows which Scouts a claim needs, in which order; later rounds repeat it with few changes. What follows depends on the
whole path, not on the newest agent alone, which is what sets a predictor with memory apart from a first-order Markov chain.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from pbkv.errors import UsageError
from pbkv.workloads.generator import Generator, Profile
from pbkv.workloads.process import Branch, State

DECOMPOSER, ANALYZER, VERIFIER = "Decomposer", "Analyzer", "Verifier"
SCOUTS = ("Scout-Wiki", "Scout-News", "Scout-Data", "Scout-Web")
ROSTER: Mapping[str, Profile] = {
    DECOMPOSER: Profile(prompt=1000, news=200, output=300, tool_s=0.5),
    "Scout-Wiki": Profile(prompt=1200, news=1600, output=400, tool_s=3.0),
    "Scout-News": Profile(prompt=1200, news=1600, output=400, tool_s=3.0),
    "Scout-Data": Profile(prompt=1200, news=1600, output=400, tool_s=3.0),
    "Scout-Web": Profile(prompt=1200, news=1600, output=400, tool_s=3.0),
    ANALYZER: Profile(prompt=1500, news=400, output=600, tool_s=1.0),
    VERIFIER: Profile(prompt=1000, news=200, output=300, tool_s=0.5),
}


@dataclass(frozen=True)
class HoverProcess:
    """State: (plan so far, still planning?, position in the round, rounds ended), or a word for start and end.

    `facts[i]`: probability that a claim needs i+1 different Scouts a round; `shares`: how likely each Scout is planned; `keep`:
    probability that a later round follows the plan (else a new one is made, which starts with another Scout); `again[r-1]`: probability
    of another round after r rounds.
    """

    facts: tuple[float, ...] = (0.1, 0.75, 0.15)
    shares: tuple[float, ...] = (0.8, 0.12, 0.05, 0.03)
    keep: float = 0.88
    again: tuple[float, ...] = (1.0, 0.93, 0.88, 0.7, 0.3)

    def __post_init__(self) -> None:
        if len(self.shares) != len(SCOUTS) or not _sums_to_one(self.shares):
            raise UsageError(f"shares = {self.shares}: expected {len(SCOUTS)} probabilities that sum to 1")
        if not 1 <= len(self.facts) <= len(SCOUTS) or not _sums_to_one(self.facts):
            raise UsageError(f"facts = {self.facts}: expected 1 to {len(SCOUTS)} probabilities that sum to 1")

    @property
    def start(self) -> State:
        return "start"

    def branches(self, state: State) -> tuple[Branch, ...]:
        return _branches(self, state)


def _sums_to_one(shares: tuple[float, ...]) -> bool:
    return min(shares) >= 0 and abs(sum(shares) - 1) < 1e-9


@lru_cache(maxsize=8192)
def _branches(process: HoverProcess, state: State) -> tuple[Branch, ...]:
    if state == "start":
        return (Branch(1.0, DECOMPOSER, ((), True, 0, 0)),)
    if state == "verified":
        return (Branch(1.0, None, "ended"),)
    plan, planning, position, rounds = cast(tuple[tuple[int, ...], bool, int, int], state)
    if planning:
        return _plan(process, plan, rounds)
    if position == len(plan):
        return (Branch(1.0, ANALYZER, (plan, False, 0, rounds + 1)),)
    if position == 0:
        return _decide(process, plan, rounds)
    return (Branch(1.0, SCOUTS[plan[position]], (plan, False, position + 1, rounds)),)


def _plan(process: HoverProcess, plan: tuple[int, ...], rounds: int) -> tuple[Branch, ...]:
    """Stop planning (the Analyzer comes) with the probability that no more facts are needed than are planned."""
    left = sum(process.facts[max(len(plan) - 1, 0) :])
    stop = process.facts[len(plan) - 1] / left if plan and left else float(bool(plan))
    return (Branch(stop, ANALYZER, (plan, False, 0, rounds + 1)), *_more(process, plan, plan, rounds, 1 - stop))


def _decide(process: HoverProcess, plan: tuple[int, ...], rounds: int) -> tuple[Branch, ...]:
    """After a round: the same plan again, another plan, or the Verifier."""
    again = process.again[rounds - 1] if rounds <= len(process.again) else 0.0
    same = Branch(again * process.keep, SCOUTS[plan[0]], (plan, False, 1, rounds))
    return (Branch(1 - again, VERIFIER, "verified"), same, *_more(process, (), plan[:1], rounds, again * (1 - process.keep)))


def _more(process: HoverProcess, plan: tuple[int, ...], without: tuple[int, ...], rounds: int, p: float) -> tuple[Branch, ...]:
    """One more Scout for the plan, not one of `without`, by the shares of the others."""
    others = [i for i in range(len(SCOUTS)) if i not in without]
    total = sum(process.shares[i] for i in others)
    return tuple(
        Branch(p * process.shares[i] / total, SCOUTS[i], ((*plan, i), len(plan) + 1 < len(process.facts), len(plan) + 1, rounds))
        for i in others
        if total
    )


@dataclass(frozen=True)
class HoverLike(Generator):
    """About 14 calls of 7 agents a workflow; 2 to 6 rounds. `claim_tokens`: mean size of the claim and what comes with it."""

    delay_scale: float = 3.0
    output_scale: float = 0.5
    claim_tokens: int = 600
    graph: HoverProcess = HoverProcess()

    @property
    def name(self) -> str:
        return "hover"

    @property
    def process(self) -> HoverProcess:
        return self.graph

    @property
    def roster(self) -> Mapping[str, Profile]:
        return ROSTER

    @property
    def opening_tokens(self) -> int:
        return self.claim_tokens
