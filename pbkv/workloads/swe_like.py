"""Software repair as in SWE-bench: a Planner and three helpers, of which each works for a run of calls before the Planner has its turn.

A semi-Markov graph. Run lengths and the order of helpers are rounded from the order statistics of HyperAgent's public logs (221 runs on
SWE-bench Lite); those logs go on for about 108 calls, here a workflow is cut at `max_calls`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias, cast

from pbkv.errors import UsageError
from pbkv.workloads.generator import Generator, Profile
from pbkv.workloads.process import Branch, State

PLANNER, NAVIGATOR, EDITOR, EXECUTOR = "Planner", "Navigator", "Editor", "Executor"
ROSTER: Mapping[str, Profile] = {
    PLANNER: Profile(prompt=1400, news=150, output=390, tool_s=1.0),
    NAVIGATOR: Profile(prompt=1800, news=700, output=190, tool_s=2.0),
    EDITOR: Profile(prompt=1600, news=400, output=280, tool_s=2.0),
    EXECUTOR: Profile(prompt=1200, news=500, output=200, tool_s=15.0),
}
Table: TypeAlias = tuple[tuple[int, float], ...]
#: Run lengths: (calls, probability).
RUNS: Mapping[str, Table] = {
    PLANNER: ((1, 0.64), (2, 0.17), (3, 0.11), (4, 0.06), (5, 0.02)),
    NAVIGATOR: ((1, 0.09), (2, 0.19), (3, 0.15), (4, 0.16), (5, 0.05), (6, 0.10), (7, 0.10), (8, 0.05), (12, 0.06), (14, 0.05)),
    EDITOR: ((1, 0.08), (2, 0.09), (3, 0.11), (4, 0.10), (5, 0.40), (8, 0.05), (10, 0.12), (15, 0.05)),
    EXECUTOR: ((1, 0.04), (2, 0.08), (3, 0.05), (4, 0.51), (8, 0.17), (12, 0.10), (16, 0.05)),
}
#: Who works after the Planner's turn, by who worked before it ("" = the first turn): Navigator, Editor, Executor, end.
AFTER: Mapping[str, tuple[float, float, float, float]] = {
    "": (0.92, 0.05, 0.03, 0.0),
    NAVIGATOR: (0.49, 0.40, 0.09, 0.02),
    EDITOR: (0.32, 0.25, 0.33, 0.10),
    EXECUTOR: (0.32, 0.25, 0.30, 0.13),
}


@dataclass(frozen=True)
class SweProcess:
    """State: (helper before, agent, calls of the run so far, calls of the workflow so far), or a word for start and end."""

    max_calls: int = 60
    runs: Mapping[str, Table] = field(default_factory=lambda: RUNS, hash=False)
    after: Mapping[str, tuple[float, float, float, float]] = field(default_factory=lambda: AFTER, hash=False)

    def __post_init__(self) -> None:
        if not 1 <= self.max_calls <= 256:
            raise UsageError(f"max_calls = {self.max_calls}: expected 1 to 256")

    @property
    def start(self) -> State:
        return "start"

    def branches(self, state: State) -> tuple[Branch, ...]:
        return _branches(self, state)


@lru_cache(maxsize=1 << 15)
def _branches(process: SweProcess, state: State) -> tuple[Branch, ...]:
    if state == "start":
        return (Branch(1.0, PLANNER, ("", PLANNER, 1, 1)),)
    before, agent, run, calls = cast(tuple[str, str, int, int], state)
    if calls >= process.max_calls:
        return (Branch(1.0, None, "ended"),)
    stop = _stops(process.runs[agent], run)
    stay = Branch(1 - stop, agent, (before, agent, run + 1, calls + 1))
    if agent != PLANNER:
        return stay, Branch(stop, PLANNER, (agent, PLANNER, 1, calls + 1))
    *helpers, end = process.after[before]
    turns = (
        Branch(stop * p, helper, (before, helper, 1, calls + 1))
        for helper, p in zip((NAVIGATOR, EDITOR, EXECUTOR), helpers, strict=True)
    )
    return (stay, *turns, Branch(stop * end, None, "ended"))


def _stops(table: Table, run: int) -> float:
    """Probability that a run which has lasted `run` calls ends here."""
    left = sum(p for length, p in table if length >= run)
    return sum(p for length, p in table if length == run) / left if left else 1.0


@dataclass(frozen=True)
class SweLike(Generator):
    """About 50 calls of 4 agents a workflow. `report_tokens`: mean size of the bug report."""

    report_tokens: int = 800
    max_calls: int = 60

    @property
    def name(self) -> str:
        return "swe"

    @property
    def process(self) -> SweProcess:
        return SweProcess(self.max_calls)

    @property
    def roster(self) -> Mapping[str, Profile]:
        return ROSTER

    @property
    def opening_tokens(self) -> int:
        return self.report_tokens
