"""The web server and the collector as processes of their own, on free loopback ports."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.dashboards.waiting import wait_for
from tests.support.ports import free_port

#: A machine that also runs everything else may take long to import Dash.
START_S = 90


class Process:
    """A subprocess whose output goes to a file; ended when the context is left."""

    def __init__(self, argv: list[str], env: Mapping[str, str] | None = None) -> None:
        self._argv, self._env = argv, {**os.environ, **(env or {})}
        self._out = tempfile.NamedTemporaryFile("w+b", suffix=".log")  # noqa: SIM115

    def start(self) -> None:
        self.process = subprocess.Popen(self._argv, env=self._env, stdout=self._out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def log(self) -> str:
        return Path(self._out.name).read_text(errors="replace")

    def await_log(self, text: str, times: int = 1) -> None:
        wait_for(lambda: self.log().count(text) >= times or self.process.poll() is not None, START_S, f"{text!r} in the log")
        assert self.process.poll() is None, self.log()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.process.wait(30)

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
        self._out.close()


class WebServer(Process):
    """`python -m dashboards SOURCE`, ready when the context is entered."""

    def __init__(self, source: str, *options: str, env: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__([sys.executable, "-m", "dashboards", source, "--port", str(self.port), *options], env)
        self._starts = 0

    def start(self) -> None:
        self._starts += 1
        super().start()
        self.await_log("serving http://", self._starts)

    def __enter__(self) -> Self:
        self.start()
        return self


class Collector(Process):
    """`python -m collector` over one producer, ready when the context is entered; may be killed and started again."""

    def __init__(self, events: str, replay: str, db: Path, env: Mapping[str, str]) -> None:
        self.port = free_port()
        self.source = f"grpc://127.0.0.1:{self.port}"
        super().__init__(
            [sys.executable, "-m", "collector", "--connect", f"{events},{replay}", "--db", str(db), "--listen", f"127.0.0.1:{self.port}"],
            env,
        )
        self._starts = 0

    def start(self) -> None:
        self._starts += 1
        super().start()
        self.await_log('"source"', self._starts)

    def __enter__(self) -> Self:
        self.start()
        return self
