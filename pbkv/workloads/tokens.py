"""Workloads as tokens without text: what a prompt shares with earlier prompts is told by the keys of its segments.

A segment is a run of tokens with an identity. Equal keys mean equal tokens, different keys mean tokens that differ from the first one on.
Two prompts therefore share exactly the segments of their longest common prefix, whatever the page size.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Segment(NamedTuple):
    """A run of `tokens` tokens whose content is named by `key`."""

    key: int
    tokens: int


@dataclass(frozen=True, slots=True)
class TokenCall:
    """One call of an agent. `output.tokens` tokens are generated; a later prompt may contain the output segment."""

    agent: str
    prompt: tuple[Segment, ...]
    output: Segment
    delay_s: float  #: tool or think time between the last reply and this call
    final: bool = False
    text: bytes | None = None  #: text signal of the output (128 int8), where a trace has one
    heard: bytes | None = None  #: text signal of the prompt, where a recording has one

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt, tokens."""
        return sum(segment.tokens for segment in self.prompt)


@dataclass(frozen=True, slots=True)
class TokenWorkflow:
    """Calls that follow each other, never two at a time."""

    name: str
    calls: tuple[TokenCall, ...]
    start_s: float | None = None  #: absolute start, for traces of an open loop; None = starts when another one has ended
    attributed: bool = True  #: False: the calls carry no identity

    @property
    def agents(self) -> tuple[str, ...]:
        """Agents in the order of their calls."""
        return tuple(call.agent for call in self.calls)


class TokenWorkload(Protocol):
    """A supply of workflows: endless for generators, finite for traces. The n-th one depends on (seed, n) alone."""

    @property
    def name(self) -> str: ...

    def workflows(self, seed: int) -> Iterator[TokenWorkflow]: ...


def content_key(*parts: object) -> int:
    """Key of the content that `parts` identify: 63 bits of a hash, so that keys of all workloads can share one tree."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1
