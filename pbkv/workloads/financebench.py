"""Questions about annual reports as a static chain of five agents, as a CrewAI crew works on FinanceBench: the order never varies."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from pbkv.workloads.base import Play, Script
from pbkv.workloads.graph import Agent, Turns
from pbkv.workloads.text import prose

AGENTS = {
    "Planner": Agent("Say which filing and which statements answer the question.", 240, 32, 0.3),
    "Retriever": Agent("Find the passages of the filing that are meant and quote them.", 220, 48, 1.2),
    "Extractor": Agent("Copy the figures out of the passages, one a line, with their units.", 220, 48, 0.5),
    "Calculator": Agent("Compute what was asked from the figures and show each step.", 200, 40, 0.4),
    "Writer": Agent("Answer the question in one sentence and cite the page.", 240, 32, 0.3),
}
#: Bytes of what a tool gives back after an agent's turn: passages, then the result of a formula.
_TOOLS = {"Retriever": 220, "Calculator": 60}
_FOLLOW_UP = 0.3
_ABANDONED = 0.1
_MAX_QUESTIONS = 3


@dataclass(frozen=True)
class FinanceBench:
    """`limit`: bytes of a prompt and its reply; `pace` scales think times."""

    seed: int = 0
    limit: int = 2048
    pace: float = 1.0
    name: str = "financebench"

    def plays(self) -> Iterator[Play]:
        """Workflows financebench-SEED-0, -1, ..."""
        for n in itertools.count():
            name = f"financebench-{self.seed}-{n}"
            yield Play(name, self._script(random.Random(name)))

    def _script(self, rng: random.Random) -> Script:
        turns = Turns(AGENTS, rng, self.limit, self.pace)
        questions = 1
        while questions < _MAX_QUESTIONS and rng.random() < _FOLLOW_UP:
            questions += 1
        abandoned = rng.random() < _ABANDONED
        for left in reversed(range(questions)):
            turns.conversation.say("user", "Question: " + prose(rng, 120))
            for agent in AGENTS:
                if abandoned and not left and agent == "Writer":
                    return  # the client went away without a last call: only the idle time ends this workflow
                yield from turns.turn(agent, final=not left and agent == "Writer")
                if length := _TOOLS.get(agent):
                    turns.tool(length)
