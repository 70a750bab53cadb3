"""Agent graphs as random processes whose state is a function of the path, so that what follows a path has an exact distribution."""

from collections.abc import Hashable, Iterator
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

State: TypeAlias = Hashable


class Branch(NamedTuple):
    """One way on from a state. `agent` is the agent called next, None for the end of the workflow."""

    probability: float
    agent: str | None
    state: State


class Process(Protocol):
    """Branches of one state have different agents and probabilities that sum to 1: a path leads to exactly one state."""

    @property
    def start(self) -> State: ...

    def branches(self, state: State) -> tuple[Branch, ...]: ...


def walk(process: Process, rng: Random) -> Iterator[str]:
    """One random path, agent by agent."""
    state = process.start
    while True:
        branches = process.branches(state)
        chosen = rng.choices(branches, [b.probability for b in branches])[0]
        if chosen.agent is None:
            return
        yield chosen.agent
        state = chosen.state


def advance(process: Process, state: State, agent: str) -> State | None:
    """The state after `agent` was called in `state`; None when the process never does that."""
    for branch in process.branches(state):
        if branch.agent == agent and branch.probability > 0:
            return branch.state
    return None


def outlook(process: Process, state: State, steps: int) -> tuple[list[dict[str, float]], list[float]]:
    """(visits, ends): visits[k-1][a] = probability that step k from `state` exists and calls a; ends[k-1] = that the end is step k."""
    mass: dict[State, float] = {state: 1.0}
    visits: list[dict[str, float]] = []
    ends: list[float] = []
    for _ in range(steps):
        after: dict[State, float] = {}
        visit: dict[str, float] = {}
        end = 0.0
        for here, p in mass.items():
            for q, agent, there in process.branches(here):
                if agent is None:
                    end += p * q
                elif q:
                    visit[agent] = visit.get(agent, 0.0) + p * q
                    after[there] = after.get(there, 0.0) + p * q
        mass = after
        visits.append(visit)
        ends.append(end)
    return visits, ends
