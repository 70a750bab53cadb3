"""The publisher over real sockets: stream, replay, names, heartbeat, and that the scheduler thread is never held up."""

import time
from collections.abc import Iterator

import pytest
import zmq

from pbkv.errors import UsageError
from pbkv.events.publisher import REPLAY_CHUNK, Publisher
from pbkv.events.schema import Namespace
from pbkv.events.wire import (
    FLAG_HEARTBEAT,
    FLAG_NAMES,
    MAGIC,
    OP_NAMES,
    OP_REPLAY,
    REPLAY_END,
    REPLAY_REQUEST,
    TOPIC,
    Message,
    decode,
)
from pbkv.events.writer import EventWriter

WAIT_MS = 30_000


class Client:
    """A subscriber and a requester."""

    def __init__(self, publisher: Publisher) -> None:
        self.context = zmq.Context()
        self.sub, self.dealer = self.context.socket(zmq.SUB), self.context.socket(zmq.DEALER)
        for s in (self.sub, self.dealer):
            s.setsockopt(zmq.LINGER, 0)
        self.sub.setsockopt(zmq.SUBSCRIBE, TOPIC)
        self.sub.connect(publisher.endpoint)
        self.dealer.connect(publisher.replay_endpoint)

    def next(self) -> Message:
        assert self.sub.poll(WAIT_MS), "nothing came"
        topic, payload = self.sub.recv_multipart()
        assert topic == TOPIC
        return decode(payload)

    def until_heartbeat(self, last: int) -> list[Message]:
        """What comes until a heartbeat says that `last` was sent."""
        messages = []
        while True:
            message = self.next()
            if message.header.flags & FLAG_HEARTBEAT:
                if message.header.seq >= last:
                    return messages
            else:
                messages.append(message)

    def ask(self, op: int, first: int = 0, last: int = 0) -> tuple[list[Message], int, int]:
        """(messages, oldest held, newest sent) of one request."""
        self.dealer.send_multipart([b"", REPLAY_REQUEST.pack(MAGIC, op, first, last)])
        messages = []
        while True:
            assert self.dealer.poll(WAIT_MS), "no answer"
            empty, payload = self.dealer.recv_multipart()
            assert empty == b""
            if len(payload) == REPLAY_END.size:
                _, oldest, newest = REPLAY_END.unpack(payload)
                return messages, oldest, newest
            messages.append(decode(payload))

    def close(self) -> None:
        self.sub.close()
        self.dealer.close()
        self.context.term()


def make(**options) -> tuple[Publisher, EventWriter]:
    publisher = Publisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", heartbeat_s=0.05, **options)
    return publisher, EventWriter("s", publisher, epoch=3)


def send(writer: EventWriter, count: int) -> None:
    for n in range(count):
        writer.emit["page"](n, 0, 1)
        writer.flush(n)


@pytest.fixture
def started() -> Iterator[tuple[Publisher, EventWriter, Client]]:
    publisher, writer = make()
    publisher.start(writer.heartbeat, writer.names_message)
    client = Client(publisher)
    yield publisher, writer, client
    client.close()
    publisher.close()


def test_messages_arrive_in_order(started):
    _, writer, client = started
    client.until_heartbeat(0)
    send(writer, 500)
    assert [m.header.seq for m in client.until_heartbeat(500)] == list(range(1, 501))


def test_replay_of_what_a_late_subscriber_missed(started):
    _, writer, client = started
    send(writer, 20)
    client.until_heartbeat(20)
    messages, oldest, newest = client.ask(OP_REPLAY, 5, 9)
    assert [m.header.seq for m in messages] == [5, 6, 7, 8, 9]
    assert (oldest, newest) == (1, 20)


def test_replay_is_cut_to_a_chunk(started):
    _, writer, client = started
    send(writer, REPLAY_CHUNK + 100)
    client.until_heartbeat(REPLAY_CHUNK + 100)
    messages, _, newest = client.ask(OP_REPLAY, 1, 10_000)
    assert [m.header.seq for m in messages] == list(range(1, REPLAY_CHUNK + 1))
    assert newest == REPLAY_CHUNK + 100


@pytest.mark.parametrize(("first", "last"), [(9, 5), (100, 200), (0, 0), (2**63, 2**64 - 1)])
def test_replay_of_nothing_still_ends(started, first: int, last: int):
    _, writer, client = started
    send(writer, 10)
    client.until_heartbeat(10)
    assert client.ask(OP_REPLAY, first, last) == ([], 1, 10)


def test_replay_before_anything_was_sent(started):
    assert started[2].ask(OP_REPLAY, 1, 10) == ([], 0, 0)


def test_the_replay_buffer_is_bounded_by_bytes_and_says_what_it_holds():
    publisher, writer = make(replay_bytes=5000)
    publisher.start(writer.heartbeat, writer.names_message)
    client = Client(publisher)
    send(writer, 200)
    client.until_heartbeat(200)
    messages, oldest, newest = client.ask(OP_REPLAY, 1, 200 + REPLAY_CHUNK)
    assert newest == 200
    assert 150 < oldest < 200
    assert [m.header.seq for m in messages] == list(range(oldest, 201))
    client.close()
    publisher.close()


def test_names_on_request(started):
    _, writer, client = started
    writer.intern(Namespace.AGENT, "planner")
    writer.intern(Namespace.ENGINE, "embedded")
    messages, _, _ = client.ask(OP_NAMES)
    assert {m.header.flags for m in messages} == {FLAG_NAMES}
    assert [r["text"] for m in messages for r in m.tables["name"]] == [b"planner", b"embedded"]


@pytest.mark.parametrize("request_bytes", [b"", b"x", REPLAY_REQUEST.pack(b"NOPE", 1, 1, 2), b"\xff" * 500])
def test_a_malformed_request_is_ignored_and_the_next_one_answered(started, request_bytes: bytes):
    _, writer, client = started
    send(writer, 3)
    client.until_heartbeat(3)
    client.dealer.send_multipart([b"", request_bytes])
    client.dealer.send_multipart([request_bytes])
    assert [m.header.seq for m in client.ask(OP_REPLAY, 1, 3)[0]] == [1, 2, 3]


def test_an_unknown_operation_just_ends(started):
    assert started[2].ask(77)[0] == []


def test_heartbeats_come_without_events(started):
    _, _, client = started
    beats = [client.next() for _ in range(3)]
    assert {(m.header.flags, m.header.seq, m.header.epoch) for m in beats} == {(FLAG_HEARTBEAT, 0, 3)}


def test_a_full_queue_refuses_counts_and_returns_at_once():
    publisher, writer = make(queue_messages=10)
    send(writer, 50)  # the thread is not running: nothing is taken away
    assert (writer.seq, writer.dropped) == (50, 40)
    publisher.start(writer.heartbeat, writer.names_message)
    client = Client(publisher)
    client.until_heartbeat(10)
    send(writer, 1)
    client.until_heartbeat(51)
    messages, _, _ = client.ask(OP_REPLAY, 1, 60)
    assert [m.header.seq for m in messages] == [*range(1, 11), 51]
    assert messages[-1].header.dropped == 40
    client.close()
    publisher.close()


def test_the_queue_is_bounded_by_bytes():
    publisher, writer = make(queue_bytes=2000)
    send(writer, 50)
    assert writer.dropped > 30
    assert publisher._taken - publisher._sent <= 2000
    publisher.close()


def test_offering_never_blocks_without_a_subscriber():
    publisher, writer = make()
    publisher.start(writer.heartbeat, writer.names_message)
    slowest = 0.0
    for n in range(3000):
        writer.emit["page"](n, 0, 1)
        start = time.thread_time()
        writer.flush(n)
        slowest = max(slowest, time.thread_time() - start)
    publisher.close()
    assert slowest < 0.05
    assert publisher._taken == publisher._sent


def test_close_sends_what_is_queued_and_can_be_repeated():
    publisher, writer = make()
    publisher.start(writer.heartbeat, writer.names_message)
    client = Client(publisher)
    client.until_heartbeat(0)
    send(writer, 300)
    publisher.close()
    publisher.close()
    assert [client.next().header.seq for _ in range(300)] == list(range(1, 301))
    client.close()


def test_close_without_start():
    publisher, _ = make()
    publisher.close()


def test_an_endpoint_in_use_is_named_and_nothing_stays_bound(started):
    publisher = started[0]
    with pytest.raises(UsageError, match=r"cannot be bound.*name a free one"):
        Publisher(publisher.endpoint, "tcp://127.0.0.1:*")
    with pytest.raises(UsageError, match="cannot be bound"):
        Publisher("tcp://127.0.0.1:*", publisher.replay_endpoint)


@pytest.mark.parametrize("endpoint", ["", "nonsense", "tcp://127.0.0.1", "tcp://256.1.1.1:1", "udp://127.0.0.1:1"])
def test_a_malformed_endpoint_is_named(endpoint: str):
    with pytest.raises(UsageError, match="event endpoint"):
        Publisher(endpoint, "tcp://127.0.0.1:*")
