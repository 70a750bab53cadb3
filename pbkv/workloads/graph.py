"""Agents of a synthetic workflow and one turn of one of them; the graphs themselves are `hover` and `swebench`."""

import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from pbkv.workloads.base import Call
from pbkv.workloads.conversation import Conversation
from pbkv.workloads.text import prose


@dataclass(frozen=True)
class Agent:
    """What an agent is told, how long its system prompt is (bytes), how much it writes, and how long its tool takes (s)."""

    task: str
    system_bytes: int
    max_tokens: int
    think_s: float


def system_prompt(agents: Mapping[str, Agent], name: str) -> str:
    """The system prompt of an agent: the same in every workflow, so that its KV is shared."""
    agent = agents[name]
    return f"You are {name}. {agent.task} " + prose(random.Random(f"system {name}"), agent.system_bytes)


class Turns:
    """Plays turns of a workflow's agents; `yield from turn(...)` returns the reply."""

    def __init__(self, agents: Mapping[str, Agent], rng: random.Random, limit: int, pace: float) -> None:
        self._agents = agents
        self._rng = rng
        self._pace = pace
        longest = max(a.max_tokens for a in agents.values())
        self.conversation = Conversation(lambda name: system_prompt(agents, name), limit - longest)

    def turn(self, name: str, *, final: bool = False) -> Generator[Call, str, str]:
        """One call of agent `name`. Think times vary by half around the agent's, all scaled by the pace."""
        agent = self._agents[name]
        think = agent.think_s * self._pace * self._rng.uniform(0.5, 1.5)
        reply = yield Call(name, self.conversation.prompt(name), agent.max_tokens, think, final)
        self.conversation.replied(name, reply)
        return reply

    def tool(self, length: int) -> None:
        """A tool's answer of about `length` bytes joins the record."""
        self.conversation.say("tool", prose(self._rng, length))
