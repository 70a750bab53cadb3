"""The thread that owns the collector's sockets: events in, replay and names requests out.

Nothing that arrives can stop it: what does not decode is counted and skipped. When the store falls behind it stops reading; the
publisher then drops, and the gap is filled from the replay buffer later.
"""

import contextlib
import threading
import time
from collections.abc import Mapping

import zmq

from collector.follow import Follower, TooManyStreams
from collector.pipe import Pipe
from collector.stream import Item, Key, Stream
from pbkv.errors import UsageError
from pbkv.events.wire import MAGIC, MAX_MESSAGE, REPLAY_END, REPLAY_REQUEST, TOPIC, WireError, decode

_POLL_MS = 100
#: Messages read from one socket before the others get their turn.
_BURST = 256
#: Messages ZMQ itself keeps for us while we do not read.
_RECEIVE_HWM = 2000


class Endpoint:
    """SUB and DEALER sockets of one publisher, and what is known of its streams."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], events: str, replay: str, follower: Follower) -> None:
        self.events, self.replay = events, replay
        self.follower = follower
        self._context = context
        self.sub = self._socket(zmq.SUB, events)
        self.sub.setsockopt(zmq.SUBSCRIBE, TOPIC)
        self.dealer = self._socket(zmq.DEALER, replay)

    def _socket(self, kind: int, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        for option, value in _OPTIONS:
            socket.setsockopt(option, value)
        try:
            socket.connect(address)
        except zmq.ZMQError as error:
            socket.close()
            raise UsageError(f"endpoint {address!r}: cannot be used ({error}); expected for example tcp://127.0.0.1:5601") from None
        return socket

    def send_request(self, now: float) -> None:
        """Send what the follower wants, if anything."""
        if self.follower.reset_requests:
            self.follower.reset_requests = False
            self.dealer.close()
            self.dealer = self._socket(zmq.DEALER, self.replay)
        request = self.follower.request(now)
        if request is not None:
            with contextlib.suppress(zmq.Again):  # nobody there yet; asked again when the time for an answer is over
                self.dealer.send_multipart([b"", REPLAY_REQUEST.pack(MAGIC, request.op, request.first, request.last)], zmq.NOBLOCK)

    def close(self) -> None:
        self.sub.close()
        self.dealer.close()


_OPTIONS = (
    (zmq.LINGER, 0), (zmq.RCVHWM, _RECEIVE_HWM), (zmq.MAXMSGSIZE, MAX_MESSAGE), (zmq.RECONNECT_IVL, 100),
    (zmq.RECONNECT_IVL_MAX, 1000), (zmq.HEARTBEAT_IVL, 2000), (zmq.HEARTBEAT_TIMEOUT, 6000),
)


class Subscriber:
    """Follows every endpoint of `connect` = [(events, replay), ...] and puts what is to be stored into `pipe`."""

    def __init__(self, connect: list[tuple[str, str]], high_water: Mapping[Key, int], pipe: Pipe) -> None:
        """Raises UsageError for an address ZMQ cannot use. Nothing has to answer there yet."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.streams: dict[Key, Stream] = {}
        self._endpoints: list[Endpoint] = []
        self._pipe = pipe
        self._closed = False
        self.refused = 0
        self.last_refusal = ""
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="pbkv-subscriber", daemon=True)
        try:
            for events, replay in connect:
                self._endpoints.append(Endpoint(self._context, events, replay, Follower(self.streams, high_water)))
        except UsageError:
            self._close()
            raise

    def _run(self) -> None:
        try:
            while not self.stop.is_set():
                self._turn(_POLL_MS)
            self._turn(0)
            now = time.monotonic()
            self._store([item for e in self._endpoints for item in e.follower.finish(now)])
        finally:
            self._close()

    def _turn(self, wait_ms: int) -> None:
        poller = zmq.Poller()
        for endpoint in self._endpoints:
            now = time.monotonic()
            self._store(endpoint.follower.tick(now))
            endpoint.send_request(now)
            poller.register(endpoint.sub, zmq.POLLIN)
            poller.register(endpoint.dealer, zmq.POLLIN)
        ready = dict(poller.poll(wait_ms))
        for endpoint in self._endpoints:
            if endpoint.dealer in ready:
                self._read(endpoint, endpoint.dealer, b"")
            if endpoint.sub in ready:
                self._read(endpoint, endpoint.sub, TOPIC)

    def _read(self, endpoint: Endpoint, socket: zmq.Socket[bytes], first_frame: bytes) -> None:
        items: list[Item] = []
        now = time.monotonic()
        for _ in range(_BURST):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            if len(frames) != 2 or frames[0] != first_frame:
                self._refuse("unexpected frames")
            else:
                items += self._accept(endpoint, frames[1], now, is_answer=socket is endpoint.dealer)
        self._store(items)

    def _accept(self, endpoint: Endpoint, payload: bytes, now: float, *, is_answer: bool) -> list[Item]:
        if is_answer and len(payload) == REPLAY_END.size and payload.startswith(MAGIC):
            _, oldest, newest = REPLAY_END.unpack(payload)
            return endpoint.follower.on_end(oldest, newest)
        try:
            return endpoint.follower.on_message(decode(payload), now)
        except (WireError, TooManyStreams) as error:
            self._refuse(str(error))
            return []

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        self.last_refusal = reason

    def _store(self, items: list[Item]) -> None:
        # Items that were not taken because we are stopping are asked for again at the next start, if nothing behind them is stored.
        if items and not self._closed:
            self._closed = not self._pipe.put(items, self.stop)

    def ages(self) -> dict[Key, float]:
        """Seconds since each live stream was heard."""
        now = time.monotonic()
        return {key: age for e in self._endpoints for key, age in e.follower.ages(now).items()}

    def _close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()
        self._context.term()
