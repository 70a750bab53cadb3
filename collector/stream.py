"""Order and completeness of one stream of messages: pure logic, no sockets, no clocks of its own.

A stream is one (server, epoch, rank). Messages leave in order of their sequence number, each exactly once; a missing one is
asked for from the sender's replay buffer and, when it cannot be had, leaves as a `Loss` in its place.
"""

from dataclasses import dataclass
from typing import NamedTuple

from pbkv.events.wire import FLAG_HEARTBEAT, FLAG_NAMES, Header, Message


class Key(NamedTuple):
    """Identity of a stream."""

    server: str
    epoch: int
    rank: int


def key_of(header: Header) -> Key:
    """The stream a message belongs to."""
    return Key(header.server, header.epoch, header.rank)


@dataclass(frozen=True)
class Loss:
    """Messages first..last (inclusive) that will never be stored, and why."""

    key: Key
    first: int
    last: int
    cause: str


Item = Message | Loss

#: Out-of-order messages kept while a gap is being filled; what does not fit is asked for again later.
MAX_HELD = 4096
#: Answers to the same question without any progress before the range is given up.
MAX_ANSWERS = 3


class Stream:
    """Sequence state of one stream. `done` = every message up to it has been delivered or given up."""

    def __init__(self, key: Key, done: int = 0, max_held: int = MAX_HELD) -> None:
        self.key = key
        self.done = done
        #: Highest sequence number known to have been sent.
        self.seen = done
        self.duplicates = self.gaps = self.lost = 0
        self.sender_dropped = 0
        self._held: dict[int, Message] = {}
        self._max_held = max_held
        #: Lowest message that found no room since the last answer, 0 = none; it was sent, so it must not pass for lost.
        self._refused = 0
        self._answers = 0
        self._gap_at = 0
        self._caught_up = False

    def offer(self, message: Message) -> list[Item]:
        """Take a message in any order; returns what can now be stored, in order."""
        header = message.header
        self.sender_dropped = max(self.sender_dropped, header.dropped)
        if header.flags & FLAG_NAMES:
            return [message]
        self.seen = max(self.seen, header.seq)
        if header.flags & FLAG_HEARTBEAT:
            return []
        if header.seq <= self.done or header.seq in self._held:
            self.duplicates += 1
            return []
        if header.seq != self.done + 1 and len(self._held) >= self._max_held:
            self._refused = min(self._refused or header.seq, header.seq)
            return []  # still in the replay buffer; asked for when its turn comes
        self._held[header.seq] = message
        return self._ready()

    def _ready(self) -> list[Item]:
        items: list[Item] = []
        while (message := self._held.pop(self.done + 1, None)) is not None:
            self.done += 1
            items.append(message)
        if items:
            self._answers = 0
        return items

    def missing(self) -> tuple[int, int] | None:
        """First range (inclusive) to ask the replay buffer for, or None.

        A gap counts once however often it is asked for; what was sent before the stream was first complete is no gap.
        """
        if self.done >= self.seen:
            self._caught_up = True
            return None
        first = self.done + 1
        if self._caught_up and self._gap_at < first:
            self.gaps += 1
        last = min(self._held, default=self.seen + 1) - 1
        self._gap_at = max(self._gap_at, last)
        return first, last

    def answered(self, asked: tuple[int, int], covered: int, oldest: int) -> list[Item]:
        """The replay buffer has sent what it has of `asked`, up to sequence number `covered`, and holds nothing before `oldest`.

        What is still missing there is lost. `covered` below the range and no progress for MAX_ANSWERS answers: all of it is lost.
        """
        last = asked[1]
        items: list[Item] = []
        before = self.done
        sent = min(covered, last, self._refused - 1) if self._refused else min(covered, last)
        self._refused = 0
        items += self._skip_to(min(oldest - 1, last), "not held")
        items += self._skip_to(sent, "dropped")
        self._answers = 0 if self.done > before else self._answers + 1
        if self._answers >= MAX_ANSWERS:
            self._answers = 0
            items += self._skip_to(last, "not held")
        return items

    def abandon(self, cause: str) -> list[Item]:
        """Give up everything missing up to the highest number seen and deliver what is held behind it."""
        return self._skip_to(self.seen, cause)

    def give_up(self, asked: tuple[int, int], cause: str) -> list[Item]:
        """Nobody answers for `asked`: whatever of it is missing is lost."""
        return self._skip_to(min(asked[1], self.seen), cause)

    def _skip_to(self, last: int, cause: str) -> list[Item]:
        """Deliver or give up every message up to `last`, in order."""
        items: list[Item] = self._ready()
        while self.done < last:
            items += self._give_up(min(last, min(self._held, default=last + 1) - 1), cause)
        return items

    def _give_up(self, last: int, cause: str) -> list[Item]:
        """One Loss from the first missing message up to `last` at most, cut where a held message begins, and what follows it."""
        last = min(last, min(self._held, default=last + 1) - 1)
        if last <= self.done:
            return self._ready()
        loss = Loss(self.key, self.done + 1, last, cause)
        self.lost += last - self.done
        self.done = last
        return [loss, *self._ready()]

    @property
    def held(self) -> int:
        """Messages waiting for an earlier one."""
        return len(self._held)
