"""Recorded runs of which only agents and output sizes are known, turned into calls by a rule for everything else.

The rule: an agent's prompt has `agent_tokens` tokens, a run opens with about `opening_tokens`, each call is told about `news_tokens` that
nobody said before (tool results), and comes about `delay_s` after the last reply. Openings, news and delays are log-normal around these
means with a draw of their own for each run and step, the same in every layout. Outputs are as recorded, at least one token. The layout
is chosen by the caller: a record of who spoke does not tell how prompts were put together.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from pbkv.errors import UsageError
from pbkv.workloads.generator import draw, draw_tokens
from pbkv.workloads.layouts import LAYOUTS, LayoutName, make_layout
from pbkv.workloads.tokens import Segment, TokenCall, TokenWorkflow, content_key


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded run: agent, output size (tokens) and, where there are some, text signals of each call's output and prompt."""

    name: str
    agents: tuple[str, ...]
    outputs: tuple[int, ...]
    texts: tuple[bytes, ...] | None = None
    prompts: tuple[bytes, ...] | None = None


@dataclass(frozen=True)
class SizeRule:
    """What the record does not say; see the head of this file. `system_tokens`: the prompt shared by all agents of the shared layout."""

    agent_tokens: int = 1500
    system_tokens: int = 800
    opening_tokens: int = 800
    news_tokens: int = 500
    delay_s: float = 3.0
    size_sigma: float = 0.4
    delay_sigma: float = 0.6

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if not 0 <= value <= 1_000_000:
                raise UsageError(f"{field} = {value!r}: expected a number from 0 to 1000000")


@dataclass(frozen=True)
class RecordedRuns:
    """A finite workload; the seed decides the order of the runs. Runs are cut after `max_calls` calls (0 = never)."""

    name: str
    runs: tuple[Run, ...]
    layout: LayoutName = "private"
    rule: SizeRule = SizeRule()
    max_calls: int = 0
    signal: str = ""  #: kind of the text signals, where a server recorded them

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise UsageError(f"layout = {self.layout!r}: expected one of {', '.join(LAYOUTS)}")
        if self.max_calls < 0:
            raise UsageError(f"max_calls = {self.max_calls}: expected 0 (never cut) or a number of calls")

    def workflows(self, seed: int) -> Iterator[TokenWorkflow]:
        """Each run once."""
        for run in Random(f"{self.name} order {seed}").sample(self.runs, len(self.runs)):
            yield self._workflow(run)

    def only(self, names: Collection[str]) -> "RecordedRuns":
        """The same workload with these runs alone."""
        return replace(self, runs=tuple(run for run in self.runs if run.name in names))

    def futures(self) -> Mapping[str, tuple[str, ...]]:
        """Agents of each run, as far as it is played."""
        return {run.name: run.agents[: self.max_calls or None] for run in self.runs}

    def _workflow(self, run: Run) -> TokenWorkflow:
        rng = Random(f"{run.name} sizes")
        rule = self.rule
        opening = Segment(content_key(run.name, "opening"), draw_tokens(rng, rule.opening_tokens, rule.size_sigma))
        layout = make_layout(self.layout, opening, Segment(content_key(self.name, "system"), max(rule.system_tokens, 1)))
        agents = run.agents[: self.max_calls or None]
        calls: list[TokenCall] = []
        for n, agent in enumerate(agents):
            news = Segment(content_key(run.name, "news", n), draw_tokens(rng, rule.news_tokens, rule.size_sigma))
            delay = draw(rng, rule.delay_s, rule.delay_sigma) if n else 0.0
            output = Segment(content_key(run.name, "output", n), max(run.outputs[n], 1))
            prompt = layout.prompt(agent, Segment(content_key(self.name, "agent", agent), max(rule.agent_tokens, 1)), news)
            layout.replied(agent, news, output)
            text, heard = (signals[n] if signals else None for signals in (run.texts, run.prompts))
            calls.append(TokenCall(agent, prompt, output, delay, n == len(agents) - 1, text, heard))
        return TokenWorkflow(run.name, tuple(calls))
