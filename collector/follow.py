"""What to do with the messages of one endpoint: which stream they belong to, what to ask the sender for, when to give up.

Pure logic: messages, answers and the time come in; items to store and requests to send come out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from collector.stream import Item, Key, Loss, Stream, key_of
from pbkv.events.publisher import REPLAY_CHUNK
from pbkv.events.wire import FLAG_NAMES, OP_NAMES, OP_REPLAY, Message

#: An unanswered request is repeated after this time, seconds.
ANSWER_S = 2.0
#: Unanswered requests, while the stream itself goes on, after which the range is given up.
MAX_UNANSWERED = 5
#: A stream with a hole that has been silent for this long gets its hole recorded as lost, seconds.
SILENT_S = 30.0
#: Streams one store takes; a sender that invents servers must fill neither the memory nor the 16 bits of `src`.
MAX_STREAMS = 60_000


@dataclass(frozen=True)
class Request:
    """A request to send: OP_NAMES, or OP_REPLAY of first..last (inclusive)."""

    op: int
    first: int = 0
    last: int = 0


@dataclass
class _Asked:
    request: Request
    key: Key | None
    at: float


class TooManyStreams(ValueError):
    """A message of yet another stream came when the store already has MAX_STREAMS."""


class Follower:
    """State of one endpoint. `streams` is shared by all endpoints of a collector, so a server reached twice is stored once.

    `high_water` says how far the streams of earlier runs are stored.
    """

    def __init__(self, streams: dict[Key, Stream], high_water: Mapping[Key, int]) -> None:
        self._streams = streams
        self._high_water = high_water
        self._mine: dict[tuple[str, int], Key] = {}
        self._heard: dict[Key, float] = {}
        self._unanswered = 0
        self._asked: _Asked | None = None
        self._names_due = False
        #: True when the request socket should be made anew, so that a late answer cannot be taken for another request's.
        self.reset_requests = False

    def on_message(self, message: Message, now: float) -> list[Item]:
        """Items to store after `message`, published or replayed. Raises TooManyStreams."""
        key = key_of(message.header)
        items = self._follow(key)
        if not message.header.flags & FLAG_NAMES:
            self._heard[key] = now
        return items + self._checked(self._streams[key].offer(message))

    def _follow(self, key: Key) -> list[Item]:
        """Make `key` a stream of this endpoint; what the server's previous epoch still misses is lost."""
        place = (key.server, key.rank)
        if self._mine.get(place) == key:
            return []
        if key not in self._streams:
            if len(self._streams) + len(self._high_water) >= MAX_STREAMS:
                raise TooManyStreams(f"the store has {MAX_STREAMS} streams; collect into a new file")
            self._streams[key] = Stream(key, self._high_water.get(key, 0))
        elif place in self._mine and key in self._heard:
            return []  # a straggler of an epoch that was replaced
        before = self._mine.get(place)
        self._mine[place] = key
        self._heard[key] = 0.0
        self._names_due = True
        return self._streams[before].abandon("server restarted") if before else []

    def _checked(self, items: list[Item]) -> list[Item]:
        if any(isinstance(item, Loss) for item in items):
            self._names_due = True  # a name may have been in what was lost
        return items

    def on_end(self, oldest: int, newest: int) -> list[Item]:
        """The sender has answered the outstanding request; its replay buffer holds oldest..newest."""
        asked, self._asked = self._asked, None
        self._unanswered = 0
        if asked is None or asked.key is None:
            return []
        request = asked.request
        covered = min(request.last, request.first + REPLAY_CHUNK - 1, newest)
        return self._checked(self._streams[asked.key].answered((request.first, request.last), covered, oldest))

    def tick(self, now: float) -> list[Item]:
        """Give up what nobody answers for any more; call before `request`."""
        return self._expire(now) + self._silent(now)

    def _expire(self, now: float) -> list[Item]:
        asked = self._asked
        if asked is None or now < asked.at + ANSWER_S:
            return []
        self._asked, self.reset_requests = None, True
        if asked.key is None:
            self._names_due = True
            return []
        # A server that is down or suspended loses nothing by our waiting; one that goes on without answering would hold all up.
        self._unanswered += self._heard.get(asked.key, 0.0) > asked.at
        if self._unanswered < MAX_UNANSWERED:
            return []
        self._unanswered = 0
        return self._checked(self._streams[asked.key].give_up((asked.request.first, asked.request.last), "no answer"))

    def _silent(self, now: float) -> list[Item]:
        items: list[Item] = []
        for key in self._mine.values():
            stream = self._streams[key]
            if stream.missing() and self._heard[key] and now > self._heard[key] + SILENT_S:
                items += stream.abandon("server gone")
        return items

    def request(self, now: float) -> Request | None:
        """The next request to send, or None; at most one is outstanding."""
        if self._asked is not None:
            return None
        if self._names_due:
            self._names_due = False
            return self._ask(Request(OP_NAMES), None, now)
        for key in self._mine.values():
            if (missing := self._streams[key].missing()) is not None:
                return self._ask(Request(OP_REPLAY, *missing), key, now)
        return None

    def _ask(self, request: Request, key: Key | None, now: float) -> Request:
        self._asked = _Asked(request, key, now)
        return request

    def finish(self, now: float, silent_s: float = 5.0) -> list[Item]:
        """Items of streams whose server is gone, for the last commit. A live server's holes stay open: it can still fill them."""
        items: list[Item] = []
        for key in self._mine.values():
            if now > self._heard[key] + silent_s:
                items += self._streams[key].abandon("server gone")
        return items

    def ages(self, now: float) -> dict[Key, float]:
        """Seconds since each current stream was heard."""
        return {key: now - self._heard[key] for key in self._mine.values() if self._heard[key]}
