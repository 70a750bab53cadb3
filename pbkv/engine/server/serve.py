"""Runs an embedded engine as a server in this process: checks first, then one socket, then the event loop until a signal."""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import uvicorn

from pbkv.control.commands import Commands
from pbkv.engine.engine import Engine
from pbkv.engine.server.app import make_app
from pbkv.engine.server.backend import EngineBackend
from pbkv.engine.server.calls import Calls
from pbkv.engine.server.live import Live
from pbkv.engine.server.meters import Meters
from pbkv.engine.server.service import Service
from pbkv.engine.server.settings import ServeSettings
from pbkv.engine.server.text import PageIds
from pbkv.errors import PbkvError, UsageError
from pbkv.events.stream import EventStream, stream_facts
from pbkv.knobs import KnobSet
from pbkv.predictor.load import serving_predictor
from pbkv.predictor.names import Roster

#: How long answers under way may take to be sent after a signal, seconds.
_GRACE_S = 1
#: Connections beyond those of pending calls; uvicorn answers 503 to more.
_MORE_CONNECTIONS = 256


@dataclass(frozen=True)
class Ready:
    """Where a server that has come up is reached."""

    url: str
    events: str | None
    replay: str | None


class _Web(uvicorn.Server):
    """Tells when it listens; a signal ends it in order and is remembered instead of raised again."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._started, self._ending = started, ending
        self.signal: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end, number)
        yield

    def _end(self, number: int) -> None:
        self.signal = number
        self.should_exit = True
        self._ending()


def run(settings: ServeSettings, ready: Callable[[Ready], None]) -> int:
    """Serve until SIGTERM (0) or SIGINT (130). Raises UsageError for an address or endpoint that cannot be bound, PbkvError when the engine
    fails.
    """
    logging.basicConfig(format="%(message)s")
    listener = _listen(settings.host, settings.port)
    with listener:
        url = _url(settings.host, listener)
        roster = Roster()
        predictor = serving_predictor(settings.config.predictor, roster)
        engine = Engine(settings.engine, KnobSet(settings.config.knob_values()), predictor, timer=time.perf_counter_ns)
        roster.bind(engine.manager.state.agent_names)
        stream = _stream(settings, engine, url)
        try:
            return asyncio.run(_serve(settings, engine, stream, listener, lambda: ready(_ready(url, stream))))
        finally:
            if stream:
                stream.close()


def _stream(settings: ServeSettings, engine: Engine, url: str) -> EventStream | None:
    if not settings.config.events:
        return None
    stream = EventStream(
        settings.config, engine="embedded", model=settings.model, control_url=url, monotonic_ns=lambda: int(engine.now * 1e9),
    )
    engine.report_to(stream.writer)
    return stream


def _ready(url: str, stream: EventStream | None) -> Ready:
    return Ready(url, stream.events if stream else None, stream.replay if stream else None)


async def _serve(
    settings: ServeSettings, engine: Engine, stream: EventStream | None, listener: socket.socket, started: Callable[[], None],
) -> int:
    def facts() -> dict[str, Any]:
        return {"engine": "embedded", "server": settings.config.server, **stream_facts(stream)}

    commands = Commands(engine.manager, facts, time.monotonic)
    live = Live(engine, commands, speed=settings.speed, max_pending=settings.max_pending)
    calls = Calls(PageIds(settings.engine.page_size), settings.context, engine.manager.counts)
    service = Service(live, calls, Meters(engine, stream, settings.model), settings.model)
    app = make_app(service, EngineBackend(commands), settings.config.token())
    config = uvicorn.Config(
        app, log_level="warning", lifespan="off", timeout_graceful_shutdown=_GRACE_S,
        limit_concurrency=settings.max_pending + _MORE_CONNECTIONS,
    )
    web = _Web(config, started, live.end)
    pump = asyncio.create_task(live.run())
    pump.add_done_callback(lambda _: setattr(web, "should_exit", True))
    await web.serve([listener])
    if pump.done() and not pump.cancelled():
        raise PbkvError(f"the engine failed: {pump.exception()!r}")
    pump.cancel()
    with suppress(asyncio.CancelledError):
        await pump
    return 130 if web.signal == signal.SIGINT else 0


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises UsageError."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, proto)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host}: {getattr(error, 'strerror', None) or error}; name an address of this machine") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise UsageError(f"--host {host} --port {port}: port {port} cannot be used ({error.strerror}); name another") from None
    return listener


def _url(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"
