"""Everything a demo runs: collector, engine, load. `with Stack(settings)` leaves nothing behind, however it is left."""

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from console.demo.engines import check_engine, collector_command, driver_command, engine_command, model_command, pbkv
from console.demo.process import Child, uninterrupted
from console.demo.settings import Settings
from pbkv.control.client import ControlClient
from pbkv.errors import PbkvError, Unreachable

#: Longest wait for a part to be ready, s. SGLang takes 20 s on an idle machine, minutes on a busy one.
START_S = 600.0
#: Time between two looks at a part that is starting, at all parts while they run, and between two lines about a start, s.
_START_LOOK_S, _LOOK_S, _SAY_S = 0.05, 0.3, 10.0


def say(text: str) -> None:
    """Progress on stderr."""
    print(f"demo: {text}", file=sys.stderr, flush=True)


class Stack:
    """The running parts, in the order they were started."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.control = ControlClient(settings.control_url, actor="demo")
        self.children: list[Child] = []
        #: /pbkv/state of the server when it came up.
        self.state: dict[str, Any] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _start(self) -> None:
        check_engine(self.settings.engine)
        if self.settings.engine == "sglang":
            self._make_model()
        # Collector first: it waits for the server, and all start at the same time.
        self._run("collector", collector_command(self.settings), grace_s=15.0)
        self._run("server", *engine_command(self.settings))
        self._wait("server", self._server_ready)
        self._run("driver", driver_command(self.settings), grace_s=10.0)
        self._wait("collector", self._collector_ready)

    def _make_model(self) -> None:
        if not self.settings.model_dir.is_dir():
            say(f"making the tiny model in {self.settings.model_dir}")
        maker = self._run("model", model_command(self.settings))
        self._wait("model", lambda: maker.exit_code == 0, maker)
        self.children.remove(maker)

    def _run(self, name: str, argv: list[str], env: dict[str, str] | None = None, *, grace_s: float = 5.0) -> Child:
        with uninterrupted():
            child = Child(name, argv, self.settings.run_dir / f"{name}.log", env=self.environment(env), grace_s=grace_s)
            self.children.append(child)
        return child

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Environment of a part: all share one state folder, and so the collector's token."""
        # Unbuffered: what a part said must be in its log when we look there after its end.
        mine = {**(base or os.environ), "PBKV_STATE_DIR": str(self.settings.state_dir), "PYTHONUNBUFFERED": "1"}
        mine.pop("PBKV_COLLECTOR_TOKEN", None)  # that would be another collector's
        return mine

    def start_web(self) -> str:
        """Serve the page; returns its address once it answers."""
        port = self.settings.ports.web
        self._run("web", pbkv("web", self.settings.source, "--port", str(port)))
        self._wait("web", lambda: _listens(port))
        return f"http://127.0.0.1:{port}/"

    def _wait(self, name: str, ready: Callable[[], bool], done: Child | None = None) -> None:
        began = said = time.monotonic()
        while not ready():
            self.check(ignore=done if done is not None and done.exit_code == 0 else None)
            now = time.monotonic()
            if now - began > START_S:
                raise PbkvError(f"{name} was not ready after {START_S:g} s; see the logs in {self.settings.run_dir}")
            if now - said >= _SAY_S:
                said = now
                say(f"waiting for the {name}, {now - began:.0f} s")
            time.sleep(_START_LOOK_S)
        if name != "model":
            say(f"{name} ready after {time.monotonic() - began:.1f} s")

    def _server_ready(self) -> bool:
        try:
            self.state = self.control.state()
        except Unreachable:
            return False
        return True

    def _collector_ready(self) -> bool:
        from collector import client, token

        with client.open(self.settings.source, token.load(self.settings.state_dir)) as reader:
            try:
                return reader.status()["rows"] is not None
            except Unreachable:
                return False

    def child(self, name: str) -> Child:
        """The part of that name. Raises StopIteration when it was not started."""
        return next(c for c in self.children if c.name == name)

    def check(self, ignore: Child | None = None) -> None:
        """Raise when a part has died, with the end of its log."""
        for child in self.children:
            if child is not ignore:
                child.check()

    def watch(self, seconds: float) -> None:
        """Let it run for that long; raises as soon as a part has died."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, _LOOK_S))
        self.check()

    def stop(self, name: str | None = None) -> None:
        """End one part, or all of them, newest first; so the collector last: it stores what the others still say."""
        with uninterrupted():
            for child in reversed([c for c in self.children if name in (None, c.name)]):
                child.stop()
                self.children.remove(child)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True
