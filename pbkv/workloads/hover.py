"""Claim checking as a dynamic graph: a Decomposer, Scouts that look facts up, an Analyzer that loops, a Verifier that decides.

How many scouts run, which, and how often the Analyzer sends one out again is decided per workflow, as in HoVer.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from pbkv.workloads.base import Play, Script
from pbkv.workloads.graph import Agent, Turns
from pbkv.workloads.text import prose

AGENTS = {
    "Decomposer": Agent("Split the claim into facts that can be looked up, one a line.", 240, 32, 0.3),
    "Scout-Wiki": Agent("Look one fact up in the encyclopedia and quote what you find.", 200, 40, 1.0),
    "Scout-News": Agent("Look one fact up in the newspapers and quote what you find.", 200, 40, 1.4),
    "Scout-Data": Agent("Look one fact up in the tables and quote the rows you find.", 200, 40, 0.8),
    "Analyzer": Agent("Weigh what was found and say which fact is still open.", 260, 48, 0.4),
    "Verifier": Agent("Decide whether the claim is supported, and why.", 220, 24, 0.3),
}
_SCOUTS = ("Scout-Wiki", "Scout-News", "Scout-Data")
_AGAIN = 0.45
_ABANDONED = 0.1


@dataclass(frozen=True)
class Hover:
    """`limit`: bytes of a prompt and its reply; `pace` scales think times."""

    seed: int = 0
    limit: int = 2048
    pace: float = 1.0
    name: str = "hover"

    def plays(self) -> Iterator[Play]:
        """Workflows hover-SEED-0, -1, ..."""
        for n in itertools.count():
            name = f"hover-{self.seed}-{n}"
            yield Play(name, self._script(random.Random(name)))

    def _script(self, rng: random.Random) -> Script:
        turns = Turns(AGENTS, rng, self.limit, self.pace)
        turns.conversation.say("user", "Claim: " + prose(rng, 80))
        yield from turns.turn("Decomposer")
        scouts = rng.sample(_SCOUTS, rng.randint(1, len(_SCOUTS)))
        while scouts:
            yield from turns.turn(scout := scouts.pop(0))
            turns.tool(120)
            if not scouts:
                yield from turns.turn("Analyzer")
                # The scout that was least sure is the likeliest to go again.
                scouts = [scout if rng.random() < 0.6 else rng.choice(_SCOUTS)] if rng.random() < _AGAIN else []
        if rng.random() < _ABANDONED:
            return  # the client went away without a last call: only the idle time ends this workflow
        yield from turns.turn("Verifier", final=True)
