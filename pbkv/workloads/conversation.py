"""How a prompt is laid out: the agent's system prompt, its own history, then what the others said since its last turn.

A prompt extends the agent's previous one byte by byte, so its KV is reusable, until the limit forces the oldest half of the history
out. Sizes are bytes: no byte-level tokenizer makes more tokens than that.
"""

from collections.abc import Callable

from pbkv.workloads.base import Message

#: Upper bound of what a chat template adds to a message, bytes.
TEMPLATE_BYTES = 32
_CUT = "[...]"


def size(messages: tuple[Message, ...] | list[Message]) -> int:
    """Upper bound of a prompt's tokens, the opening of the reply included."""
    return sum(len(m.content.encode()) + TEMPLATE_BYTES for m in messages) + TEMPLATE_BYTES


def clip(text: str, limit: int) -> str:
    """`text` in at most `limit` bytes of UTF-8: its end, marked as cut."""
    raw = text.encode(errors="replace")
    if len(raw) <= limit:
        return raw.decode()
    kept = max(limit - len(_CUT), 0)
    return (_CUT + raw[len(raw) - kept :].decode(errors="ignore"))[: max(limit, 0)] if kept else ""


class Conversation:
    """The shared record of one workflow and each agent's private history, with prompts of at most `limit` bytes."""

    def __init__(self, system: Callable[[str], str], limit: int) -> None:
        self._system = system
        self._limit = limit
        self._record: list[tuple[str, str]] = []
        self._seen: dict[str, int] = {}
        self._history: dict[str, list[Message]] = {}

    def say(self, speaker: str, text: str) -> None:
        """Add to the record what `speaker` told everyone."""
        self._record.append((speaker, text))

    def prompt(self, agent: str) -> tuple[Message, ...]:
        """The next prompt of `agent`; always followed by `replied`."""
        history = self._history.setdefault(agent, [Message("system", clip(self._system(agent), self._limit // 2))])
        new = [f"{who}: {text}" for who, text in self._record[self._seen.get(agent, 0) :] if who != agent]
        self._seen[agent] = len(self._record)
        history.append(Message("user", clip("\n".join(new) or "Go on.", self._limit // 2)))
        self._fit(history)
        return tuple(history)

    def _fit(self, history: list[Message]) -> None:
        while size(history) > self._limit and len(history) > 2:
            turns = (len(history) - 2) // 2
            # Half at once: dropping one turn per call would change the prefix, and lose its KV, at every call.
            del history[1 : 1 + 2 * max(1, (turns + 1) // 2)]
        if (over := size(history) - self._limit) > 0:
            last = history[-1]
            history[-1] = Message(last.role, clip(last.content, max(len(last.content.encode()) - over, 1)))

    def replied(self, agent: str, reply: str) -> None:
        """Close the agent's turn: the reply becomes its own history and part of the record."""
        self._history[agent].append(Message("assistant", reply))
        self.say(agent, reply)
        self._seen[agent] = len(self._record)
