"""A thread that owns the ZMQ sockets, so that the scheduler thread never touches one.

PUB carries the stream; ROUTER answers replay and names requests from a bounded buffer of recent messages. The queue
between the threads is bounded by messages and bytes: when it is full the new message is refused and counted (the collector sees a
gap, asks for it, and records a loss), the scheduler goes on.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

import zmq

from pbkv.errors import UsageError
from pbkv.events.wire import MAGIC, OP_NAMES, OP_REPLAY, REPLAY_END, REPLAY_REQUEST, TOPIC, Header, encode

_POLL_MS = 5
#: Messages sent for one replay request; the collector asks again for the rest. Keeps a request from starving the stream.
REPLAY_CHUNK = 512


class Publisher:
    """A `Sink` that publishes on `endpoint` and answers replay on `replay_endpoint` (loopback by default)."""

    def __init__(
        self,
        endpoint: str,
        replay_endpoint: str,
        *,
        queue_messages: int = 8192,
        queue_bytes: int = 32 << 20,
        replay_bytes: int = 64 << 20,
        heartbeat_s: float = 1.0,
    ) -> None:
        self._queue: deque[tuple[int, bytes]] = deque()
        # Bytes in the queue = taken - sent; each counter has one writing thread, so neither needs a lock.
        self._taken = self._sent = 0
        self._queue_messages, self._queue_bytes = queue_messages, queue_bytes
        self._replay: OrderedDict[int, bytes] = OrderedDict()
        self._replay_size, self._replay_bytes = 0, replay_bytes
        self._heartbeat_s = heartbeat_s
        self._last_sent = 0
        self._beat: Callable[[int], Header] | None = None
        self._names: Callable[[], list[bytes]] = list
        self._stop = threading.Event()
        self._context = zmq.Context()
        self._pub = self._bind(zmq.PUB, endpoint)
        self._router = self._bind(zmq.ROUTER, replay_endpoint)
        self.endpoint = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay_endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._thread = threading.Thread(target=self._run, name="pbkv-events", daemon=True)

    def _bind(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        # A ROUTER drops silently above its mark, and an answer with a hole would pass for a loss: room for many answers, always.
        socket.setsockopt(zmq.SNDHWM, 16 * REPLAY_CHUNK if kind == zmq.ROUTER else self._queue_messages)
        socket.setsockopt(zmq.MAXMSGSIZE, 1 << 16)  # what comes in is a request of a few bytes
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            # A context that is collected with an open socket waits for it for ever.
            self._context.destroy(linger=0)
            raise UsageError(f"event endpoint {endpoint!r} cannot be bound ({error}); name a free one") from None
        return socket

    def start(self, heartbeat: Callable[[int], Header], names: Callable[[], list[bytes]]) -> None:
        """Begin sending. `heartbeat(last seq)` and `names()` are called in the thread."""
        self._beat, self._names = heartbeat, names
        self._thread.start()

    def offer(self, seq: int, payload: bytes) -> bool:
        """Take a message from the scheduler thread; False when it had to be dropped."""
        if len(self._queue) >= self._queue_messages or self._taken - self._sent + len(payload) > self._queue_bytes:
            return False
        self._taken += len(payload)
        self._queue.append((seq, payload))
        return True

    def close(self) -> None:
        """Send what is queued, then end the thread and close the sockets."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2)
        self._pub.close()
        self._router.close()
        self._context.term()

    def _run(self) -> None:
        next_beat = 0.0
        while True:
            stopping = self._stop.is_set()
            self._drain()
            if stopping:
                return
            now = time.monotonic()
            if self._beat and now >= next_beat:
                next_beat = now + self._heartbeat_s
                self._pub.send_multipart([TOPIC, encode(self._beat(self._last_sent), [])])
            if self._router.poll(_POLL_MS):
                self._answer(self._router.recv_multipart())

    def _drain(self) -> None:
        while self._queue:
            seq, payload = self._queue.popleft()
            self._sent += len(payload)
            self._pub.send_multipart([TOPIC, payload])
            self._last_sent = seq
            self._replay[seq] = payload
            self._replay_size += len(payload)
            while self._replay_size > self._replay_bytes:
                self._replay_size -= len(self._replay.popitem(last=False)[1])

    def _answer(self, frames: list[bytes]) -> None:
        peer, request = frames[0], frames[-1]
        if len(request) != REPLAY_REQUEST.size:
            return
        magic, op, first, last = REPLAY_REQUEST.unpack(request)
        if magic != MAGIC:
            return
        if op == OP_NAMES:
            for message in self._names():
                self._router.send_multipart([peer, b"", message])
        elif op == OP_REPLAY:
            for seq in range(max(first, self._oldest()), min(last, first + REPLAY_CHUNK - 1, self._newest()) + 1):
                if (payload := self._replay.get(seq)) is not None:
                    self._router.send_multipart([peer, b"", payload])
        self._router.send_multipart([peer, b"", REPLAY_END.pack(MAGIC, self._oldest(), self._newest())])

    def _oldest(self) -> int:
        return next(iter(self._replay), 0)

    def _newest(self) -> int:
        return next(reversed(self._replay), 0)

