"""Software repair as four agents: a Planner, a Navigator that reads, an Editor that changes, an Executor that runs the tests."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from pbkv.workloads.base import Play, Script
from pbkv.workloads.graph import Agent, Turns
from pbkv.workloads.text import prose

AGENTS = {
    "Planner": Agent("Read the report and name the next step: look, change, run or submit.", 280, 40, 0.3),
    "Navigator": Agent("Find the code that is meant and show it.", 220, 48, 0.8),
    "Editor": Agent("Write the patch for the code you were shown.", 240, 64, 0.5),
    "Executor": Agent("Run the tests and report what fails.", 200, 32, 1.8),
}
_FIXED = 0.4
_ABANDONED = 0.1
_MAX_ROUNDS = 4


@dataclass(frozen=True)
class SweBench:
    """`limit`: bytes of a prompt and its reply; `pace` scales think times."""

    seed: int = 0
    limit: int = 2048
    pace: float = 1.0
    name: str = "swebench"

    def plays(self) -> Iterator[Play]:
        """Workflows swebench-SEED-0, -1, ..."""
        for n in itertools.count():
            name = f"swebench-{self.seed}-{n}"
            yield Play(name, self._script(random.Random(name)))

    def _script(self, rng: random.Random) -> Script:
        turns = Turns(AGENTS, rng, self.limit, self.pace)
        turns.conversation.say("user", "Report: " + prose(rng, 140))
        yield from turns.turn("Planner")
        for _ in range(_MAX_ROUNDS):
            for _ in range(rng.randint(1, 2)):
                yield from turns.turn("Navigator")
                turns.tool(180)
            yield from turns.turn("Editor")
            yield from turns.turn("Executor")
            turns.tool(140)
            if rng.random() < _FIXED:
                break
            yield from turns.turn("Planner")
        if rng.random() < _ABANDONED:
            return  # the client went away without a last call: only the idle time ends this workflow
        yield from turns.turn("Planner", final=True)
