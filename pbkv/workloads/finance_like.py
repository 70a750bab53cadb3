"""Questions about filings as in FinanceBench: a static chain of five agents, each called once or, with turns, several times in a row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pbkv.errors import UsageError
from pbkv.workloads.generator import Generator, Profile
from pbkv.workloads.process import Branch, State

ROSTER: Mapping[str, Profile] = {
    "Retriever": Profile(prompt=1200, news=2000, output=300, tool_s=2.0),
    "Extractor": Profile(prompt=1500, news=1500, output=400, tool_s=2.0),
    "Calculator": Profile(prompt=1000, news=600, output=300, tool_s=4.0),
    "Analyst": Profile(prompt=1800, news=1000, output=600, tool_s=2.0),
    "Reporter": Profile(prompt=1200, news=300, output=500, tool_s=1.0),
}
CHAIN = tuple(ROSTER)


@dataclass(frozen=True)
class FinanceProcess:
    """State: (position in the chain, turns taken there), or a word for the end. Each agent takes exactly `turns` turns."""

    turns: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.turns <= 50:
            raise UsageError(f"turns = {self.turns}: expected 1 to 50")

    @property
    def start(self) -> State:
        return (0, 0)

    def branches(self, state: State) -> tuple[Branch, ...]:
        if state == "ended":
            return ()
        position, taken = cast(tuple[int, int], state)
        if taken == self.turns:
            position, taken = position + 1, 0
        if position == len(CHAIN):
            return (Branch(1.0, None, "ended"),)
        return (Branch(1.0, CHAIN[position], (position, taken + 1)),)


@dataclass(frozen=True)
class FinanceLike(Generator):
    """5 calls a workflow, times `turns`. `filing_tokens`: mean size of the pages of the filing that every agent is given."""

    delay_scale: float = 3.0
    turns: int = 1
    filing_tokens: int = 5000

    @property
    def name(self) -> str:
        return "finance" if self.turns == 1 else "finance-turns"

    @property
    def process(self) -> FinanceProcess:
        return FinanceProcess(self.turns)

    @property
    def roster(self) -> Mapping[str, Profile]:
        return ROSTER

    @property
    def opening_tokens(self) -> int:
        return self.filing_tokens
