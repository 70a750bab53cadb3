"""A real SGLang server on CPU as a context manager, and what tests ask of it."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import requests
import zmq

from pbkv.events.wire import TOPIC, decode
from tests.support.ports import free_port

START_S = 600
#: The scheduler sends a call's last events at its next turn, which is at most this much later.
SETTLE_NS = 500_000_000
Reply = dict[str, Any]


class Server:
    """One running server. `log()` is everything it printed."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log_path: Path) -> None:
        self.process, self.port, self._log = process, port, log_path
        self.url = f"http://127.0.0.1:{port}"
        self._http = requests.Session()
        self._http.trust_env = False

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def call(self, method: str, path: str, body: object = None, **headers: str) -> requests.Response:
        return self._http.request(method, self.url + path, json=body, headers=headers, timeout=120)

    def stream(self, path: str, body: object) -> requests.Response:
        """The answer to a POST, to be read piece by piece; close it."""
        return self._http.post(self.url + path, json=body, timeout=600, stream=True)

    def generate(self, tokens: list[int], n: int = 8, **body: Any) -> Reply:
        """Greedy tokens after `tokens`; extra keys go into the request."""
        sampling = {"max_new_tokens": n, "temperature": 0, "ignore_eos": True, **body.pop("sampling", {})}
        answer = self.call("POST", "/generate", {"input_ids": tokens, "sampling_params": sampling, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def chat(self, text: str, n: int = 8, **body: Any) -> Reply:
        request = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": n, "temperature": 0, "ignore_eos": True}
        answer = self.call("POST", "/v1/chat/completions", {**request, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def state(self) -> dict[str, Any]:
        return self.call("GET", "/pbkv/state").json()

    def alive(self) -> bool:
        return self.process.poll() is None and self.call("GET", "/health").status_code == 200


@contextmanager
def running_server(model: Path, *, config: dict[str, Any] | None = None, **options: Any) -> Iterator[Server]:
    """A server of `model`; with `config` it has the plugin. Its process group is ended afterwards, whatever happened."""
    from pbkv_sglang_cpu.launch import server_command  # a machine with a GPU has no need of it

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        settings = path / "pbkv.json"
        settings.write_text(json.dumps({"link_bytes_per_s": 1e9, "decode_step_s": 0.01, **(config or {})}))
        port = free_port()
        argv, env = server_command(model, port, plugin=config is not None, config=settings, **options)
        with (path / "log").open("wb") as log:
            process = subprocess.Popen(argv, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=folder)
        try:
            server = Server(process, port, path / "log")
            _wait_until_up(server)
            yield server
        finally:
            end_group(process)


def _wait_until_up(server: Server) -> None:
    def up() -> bool:
        assert server.process.poll() is None, server.log()[-4000:]
        try:
            return server.call("GET", "/health").status_code == 200
        except requests.ConnectionError:
            return False

    wait_for(up, START_S)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
    process.wait(10)


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    """Until the condition holds; fails the test when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition did not hold in time"
        time.sleep(0.05)


class Events:
    """A subscriber that keeps every record it sees; `gaps` counts missing messages."""

    def __init__(self, endpoint: str) -> None:
        self._socket = zmq.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 100_000)
        self._socket.connect(endpoint)
        self._socket.subscribe(TOPIC)
        self._last = 0
        self.gaps = 0
        self.ranks: set[int] = set()
        self.totals: Counter[str] = Counter()
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        assert self._socket.poll(10_000), "no heartbeat from the event stream"

    def drain(self) -> "Events":
        """Take in everything sent up to now: until a heartbeat made well after this call, since they travel in order."""
        until = time.time_ns() + SETTLE_NS
        while True:
            assert self._socket.poll(60_000), "the event stream has stopped"
            message = decode(self._socket.recv_multipart()[1])
            if message.header.flags:
                if message.header.wall_ns > until:
                    return self
                continue
            self.gaps += bool(self._last) and message.header.seq != self._last + 1
            self._last = message.header.seq
            self.ranks.add(message.header.rank)
            for kind, table in message.tables.items():
                names = table.dtype.names or ()
                step = message.header.step
                self.rows[kind] += [{**dict(zip(names, row, strict=True)), "sched_step": step} for row in np.asarray(table).tolist()]

    def counts(self) -> Counter[str]:
        return Counter({kind: len(rows) for kind, rows in self.rows.items()})

    def tally(self) -> None:
        """Count what was taken in and forget it, for a stream that goes on for long."""
        self.totals += self.counts()
        self.rows.clear()

    def close(self) -> None:
        self._socket.close()
