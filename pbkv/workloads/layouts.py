"""How a workflow's calls become prompts. Three layouts, which decide what one agent can reuse of another's cache.

| layout | prompt | who can reuse it |
|---|---|---|
| private | agent prompt, opening, the agent's own history, what the others said since its last turn, news | the agent itself |
| shared | system prompt of the workflow, opening, context, agent prompt, news | any agent, up to the end of the context |
| group | agent prompt, opening, context, news | the agent itself, up to the end of the context at its last turn |

Opening: what the workflow is about. News: what reaches the agent from outside (tool result, passages, a person). Context: news and output
of every call so far, in order.
"""

from typing import Literal, Protocol

from pbkv.errors import UsageError
from pbkv.workloads.tokens import Segment

LayoutName = Literal["private", "shared", "group"]
LAYOUTS: tuple[LayoutName, ...] = ("private", "shared", "group")


class Layout(Protocol):
    """The prompts of one workflow; every `prompt` is followed by one `replied` with the same agent and news."""

    def prompt(self, agent: str, instructions: Segment, news: Segment) -> tuple[Segment, ...]: ...

    def replied(self, agent: str, news: Segment, output: Segment) -> None: ...


class Private:
    """Each agent sees its own turns, and what the others have said since."""

    def __init__(self, opening: Segment) -> None:
        self._opening = opening
        self._history: dict[str, list[Segment]] = {}
        self._said: list[tuple[str, Segment]] = []
        self._heard: dict[str, int] = {}

    def prompt(self, agent: str, instructions: Segment, news: Segment) -> tuple[Segment, ...]:
        history = self._history.setdefault(agent, [instructions, self._opening])
        history.extend(output for who, output in self._said[self._heard.get(agent, 0) :] if who != agent)
        self._heard[agent] = len(self._said)
        return (*history, news)

    def replied(self, agent: str, news: Segment, output: Segment) -> None:
        self._history[agent] += (news, output)
        self._said.append((agent, output))


class Shared:
    """One context for all; what makes an agent differ comes after it."""

    def __init__(self, opening: Segment, system: Segment) -> None:
        self._context = [system, opening]

    def prompt(self, agent: str, instructions: Segment, news: Segment) -> tuple[Segment, ...]:
        return (*self._context, instructions, news)

    def replied(self, agent: str, news: Segment, output: Segment) -> None:
        self._context += (news, output)


class Group:
    """A group chat: each agent's own prompt, then all that was said."""

    def __init__(self, opening: Segment) -> None:
        self._context = [opening]

    def prompt(self, agent: str, instructions: Segment, news: Segment) -> tuple[Segment, ...]:
        return (instructions, *self._context, news)

    def replied(self, agent: str, news: Segment, output: Segment) -> None:
        self._context += (news, output)


def make_layout(name: str, opening: Segment, system: Segment) -> Layout:
    """Layout `name` for a new workflow; `system` is used by the shared layout alone. Raises UsageError for an unknown name."""
    if name == "private":
        return Private(opening)
    if name == "shared":
        return Shared(opening, system)
    if name == "group":
        return Group(opening)
    raise UsageError(f"layout {name!r}: no such layout; expected one of {', '.join(LAYOUTS)}")
