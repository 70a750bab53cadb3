"""A control server for tests: the product's own router over the product's own KnobSet, on a real socket."""

import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import uvicorn
from fastapi import FastAPI

from pbkv.control.models import KnobPatch, RecordAsk
from pbkv.control.router import control_router
from pbkv.knobs import Change, KnobSet
from pbkv.recorder import Recorder


class MemoryBackend:
    """A `ControlBackend` that applies a change at its next step at once. `clock` drives expiry, seconds."""

    def __init__(self, *, step: int = 100, clock: Callable[[], float] = time.monotonic, state: dict[str, Any] | None = None) -> None:
        self.set = KnobSet()
        self.step = step
        self.clock = clock
        self.extra = state or {}
        self.log: list[dict[str, Any]] = []
        self.recorder = Recorder("")

    def tick(self) -> None:
        """One scheduler step: takes back a change that was not confirmed in time."""
        self.step += 1
        self._record(self.set.expire(self.clock(), self.step))

    async def knobs(self) -> dict[str, Any]:
        self.tick()
        return dict(self.set.describe())

    async def patch(self, patch: KnobPatch) -> dict[str, Any]:
        self.tick()
        changes = self.set.apply(
            patch.changes, if_version=patch.if_version, step=self.step, actor=patch.actor, reason=patch.reason,
            source=patch.source, now=self.clock(), expires_s=patch.expires_s,
        )
        self._record(changes)
        rows = [{"name": c.name, "old": c.old, "new": c.new} for c in changes]
        return {"version": self.set.version, "step": self.set.step, "changes": rows}

    async def confirm(self, version: int) -> dict[str, Any]:
        self.tick()
        self.set.confirm(version)
        return {"version": self.set.version}

    async def history(self) -> list[dict[str, Any]]:
        self.tick()
        return list(self.log)

    async def state(self) -> dict[str, Any]:
        return {"engine": "test engine", "server": "test", "epoch": 1, "step": self.step, **self.extra}

    async def record(self, ask: RecordAsk) -> dict[str, Any]:
        return self.recorder.since(ask.epoch, ask.after)

    def _record(self, changes: list[Change]) -> None:
        for c in changes:
            self.log.append({
                "version": c.version, "step": self.set.step, "wall_ns": time.time_ns(), "name": c.name, "old": c.old, "new": c.new,
                "actor": c.actor, "source": c.source, "reason": c.reason,
            })


class ControlServer:
    """`with ControlServer() as server: ControlClient(server.url)`. Listens on a free loopback port (or `port`) in a thread."""

    def __init__(self, *, token: str | None = None, port: int = 0, backend: MemoryBackend | None = None) -> None:
        self.backend = backend or MemoryBackend()
        self.app = FastAPI()
        self.app.include_router(control_router(self.backend, token))
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server = uvicorn.Server(uvicorn.Config(self.app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started:
            assert self._thread.is_alive() and time.monotonic() < deadline, "control server did not start"
            self._thread.join(0.01)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop answering and free the port."""
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()
