"""The event stream of one server: writer, publisher, and the names that describe the server itself."""

import atexit
import time
from collections.abc import Callable
from typing import Any

from pbkv.config import ServerConfig
from pbkv.events.publisher import Publisher
from pbkv.events.schema import Namespace
from pbkv.events.writer import EventWriter


class EventStream:
    """Opened by the one process of a server that publishes; `monotonic_ns` is the clock of its events. Raises UsageError when an endpoint
    cannot be bound.
    """

    def __init__(
        self, config: ServerConfig, *, engine: str, model: str, control_url: str, rank: int = 0,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._publisher = Publisher(config.events, config.replay, replay_bytes=config.replay_bytes)
        self.writer = EventWriter(config.server, self._publisher, rank=rank, monotonic_ns=monotonic_ns)
        self.events, self.replay = self._publisher.endpoint, self._publisher.replay_endpoint
        self.control_url = config.control_url or control_url
        self.writer.intern(Namespace.ENGINE, engine)
        self.writer.intern(Namespace.MODEL, model)
        self.writer.intern(Namespace.CONTROL_URL, self.control_url)
        self._publisher.start(self.writer.heartbeat, self.writer.names_message)
        atexit.register(self.close)

    def close(self) -> None:
        """Send what is left and free the endpoints."""
        self._publisher.close()


def stream_facts(stream: EventStream | None) -> dict[str, Any]:
    """What GET /pbkv/state says of the stream; all None without one."""
    if stream is None:
        return {"epoch": None, "events": None, "replay": None, "control_url": None, "dropped_messages": 0}
    return {
        "epoch": stream.writer.epoch, "events": stream.events, "replay": stream.replay, "control_url": stream.control_url,
        "dropped_messages": stream.writer.dropped,
    }
