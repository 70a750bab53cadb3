"""Synthetic workflows: an agent graph, a roster with sizes and delays, and a layout, turned into calls."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from pbkv.errors import UsageError
from pbkv.workloads.layouts import LAYOUTS, Layout, LayoutName, make_layout
from pbkv.workloads.process import Process, walk
from pbkv.workloads.tokens import Segment, TokenCall, TokenWorkflow, content_key

#: A draw is cut at this multiple of its mean: one huge prompt would decide a whole run.
LONGEST = 8.0


@dataclass(frozen=True)
class Profile:
    """Sizes of one agent: its prompt (tokens, the same in every workflow), and the means of its news and output (tokens) and of the time
    that its tool takes after a call (s).
    """

    prompt: int
    news: int
    output: int
    tool_s: float


@dataclass(frozen=True)
class Generator:
    """What all generators share. Sizes and delays are log-normal around the roster's means.

    `output_scale` and `delay_scale` multiply the roster's outputs and tool times; `size_sigma` and `delay_sigma` are the standard
    deviations of the logarithms; `system_tokens` is the prompt that agents of the shared layout have in common; `abandoned` is the share
    of workflows that end without saying so.
    """

    layout: LayoutName = "private"
    output_scale: float = 1.0
    delay_scale: float = 1.0
    size_sigma: float = 0.4
    delay_sigma: float = 0.6
    system_tokens: int = 800
    abandoned: float = 0.0

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise UsageError(f"layout = {self.layout!r}: expected one of {', '.join(LAYOUTS)}")
        for field in ("output_scale", "delay_scale", "size_sigma", "delay_sigma", "abandoned"):
            if not 0 <= (value := getattr(self, field)) <= 1000:
                raise UsageError(f"{field} = {value!r}: expected a number from 0 to 1000")

    @property
    def name(self) -> str:
        """Name of the workload, and first part of its workflows' names."""
        raise NotImplementedError

    @property
    def process(self) -> Process:
        """The graph; what may follow a path is read from it."""
        raise NotImplementedError

    @property
    def roster(self) -> Mapping[str, Profile]:
        """Sizes by agent."""
        raise NotImplementedError

    @property
    def opening_tokens(self) -> int:
        """Mean size of what a workflow is about, tokens."""
        raise NotImplementedError

    def workflows(self, seed: int) -> Iterator[TokenWorkflow]:
        """Workflows NAME-SEED-0, -1, ... without end."""
        process, roster = self.process, self.roster
        for n in itertools.count():
            yield self._workflow(f"{self.name}-{seed}-{n}", process, roster)

    def _workflow(self, name: str, process: Process, roster: Mapping[str, Profile]) -> TokenWorkflow:
        # Path first, sizes from a generator of their own: the same workflow calls the same agents in every layout and at every scale.
        rng = Random(f"{name} sizes")
        path = list(walk(process, Random(f"{name} path")))
        says_so = Random(f"{name} end").random() >= self.abandoned
        opening = Segment(content_key(name, "opening"), draw_tokens(rng, self.opening_tokens, self.size_sigma))
        layout = make_layout(self.layout, opening, Segment(content_key(self.name, "system"), self.system_tokens))
        calls: list[TokenCall] = []
        delay = 0.0
        for n, agent in enumerate(path):
            call = self._call(name, n, agent, roster[agent], layout, rng, delay, says_so and n == len(path) - 1)
            calls.append(call)
            delay = draw(rng, roster[agent].tool_s * self.delay_scale, self.delay_sigma)
        return TokenWorkflow(name, tuple(calls))

    def _call(
        self, name: str, n: int, agent: str, profile: Profile, layout: Layout, rng: Random, delay: float, final: bool
    ) -> TokenCall:
        news = Segment(content_key(name, "news", n), draw_tokens(rng, profile.news, self.size_sigma))
        output = Segment(content_key(name, "output", n), draw_tokens(rng, profile.output * self.output_scale, self.size_sigma))
        prompt = layout.prompt(agent, Segment(content_key(self.name, "agent", agent), profile.prompt), news)
        layout.replied(agent, news, output)
        return TokenCall(agent, prompt, output, delay, final)


def draw(rng: Random, mean: float, sigma: float) -> float:
    """Log-normal with that mean, cut at LONGEST times it."""
    z = rng.gauss(0.0, 1.0)
    return min(mean * math.exp(sigma * z - sigma * sigma / 2), LONGEST * mean)


def draw_tokens(rng: Random, mean: float, sigma: float) -> int:
    """The same in whole tokens, at least one."""
    return max(1, round(draw(rng, mean, sigma)))
