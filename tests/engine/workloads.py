"""A small token workload with everything that happens to a cache: shared prefixes, histories that grow, forks, odd lengths."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from pbkv.workloads.tokens import Segment, TokenCall, TokenWorkflow, content_key


@dataclass(frozen=True)
class Mixed:
    """Three agents with private histories, a fourth that reads the whole conversation. `scale` multiplies all sizes."""

    scale: float = 1.0
    limit: int | None = None
    attributed: bool = True
    gap_s: float | None = None  #: open loop: a workflow every so many seconds
    name: str = "mixed"

    def workflows(self, seed: int) -> Iterator[TokenWorkflow]:
        for n in itertools.count() if self.limit is None else range(self.limit):
            calls = tuple(self._calls(f"{self.name}-{seed}-{n}"))
            yield TokenWorkflow(f"{self.name}-{seed}-{n}", calls, None if self.gap_s is None else n * self.gap_s, self.attributed)

    def _calls(self, name: str) -> Iterator[TokenCall]:
        rng = random.Random(name)
        history: dict[str, list[Segment]] = {agent: [Segment(content_key(agent), self._tokens(rng, 40))] for agent in "ABCR"}
        for agent in "ABCR":
            history[agent] = [Segment(content_key(agent), round(40 * self.scale))]
        total = rng.randint(2, 9)
        for n in range(total):
            agent = rng.choice("ABCR")
            news = Segment(content_key(name, n, "news"), self._tokens(rng, 25))
            output = Segment(content_key(name, n, "output"), self._tokens(rng, 20))
            yield TokenCall(agent, (*history[agent], news), output, rng.random(), n == total - 1 and rng.random() < 0.8)
            for reader in {agent, "R"}:
                history[reader] += [news, output]

    def _tokens(self, rng: random.Random, mean: int) -> int:
        return max(1, round(rng.uniform(0.2, 1.8) * mean * self.scale))
