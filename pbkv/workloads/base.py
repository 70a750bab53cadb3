"""What a workload is: an endless supply of workflows, each a script that yields calls and is sent the replies."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    """One chat message."""

    role: Role
    content: str


@dataclass(frozen=True)
class Call:
    """One call of an agent: wait `think_s` seconds (the tool or the person before it), then ask for `max_tokens` tokens."""

    agent: str
    messages: tuple[Message, ...]
    max_tokens: int
    think_s: float
    final: bool = False


#: `next(script)` is the first call, `script.send(reply)` the one after; StopIteration ends the workflow.
Script = Generator[Call, str, None]


@dataclass(frozen=True)
class Play:
    """A workflow about to be played; `name` is its identity towards the engine."""

    name: str
    script: Script


class Workload(Protocol):
    """Endless; the same seed gives the same workflows, and the same replies give the same calls."""

    @property
    def name(self) -> str: ...

    def plays(self) -> Iterator[Play]: ...
