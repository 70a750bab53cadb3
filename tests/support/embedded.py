"""The embedded engine as a process of its own, asked the way a SGLang server is asked in `tests.support.server`."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests

Reply = dict[str, Any]


def serve_command(*args: str) -> list[str]:
    """`pbkv serve --embedded` on a free port."""
    return [sys.executable, "-m", "console.main", "serve", "--embedded", "--port", "0", "--json", *args]


class EmbeddedServer:
    """`with EmbeddedServer(folder, "--device-tokens", "4096", config={...}) as server: server.chat("hello")`."""

    def __init__(self, folder: Path, *args: str, config: dict[str, Any] | None = None) -> None:
        settings = folder / "pbkv.json"
        settings.write_text(json.dumps({"server": "under-test", **(config or {})}))
        self._errors = folder / "stderr"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                serve_command("--config", str(settings), *args), stdout=subprocess.PIPE, stderr=errors, text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server did not start: {self.log()}"
        self.ready: dict[str, str] = json.loads(line)
        self.url = self.ready["url"]
        self._http = requests.Session()
        self._http.trust_env = False

    def log(self) -> str:
        """What it said on stderr."""
        return self._errors.read_text(errors="replace")

    def call(self, method: str, path: str, body: object = None, **headers: str) -> requests.Response:
        return self._http.request(method, self.url + path, json=body, headers=headers, timeout=60)

    def raw(self, path: str, data: bytes) -> int:
        """Status of a POST of these bytes."""
        return self._http.post(self.url + path, data=data, timeout=60).status_code

    def chat(self, text: str, n: int = 8, **body: Any) -> Reply:
        request = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": n, "temperature": 0, "ignore_eos": True}
        answer = self.call("POST", "/v1/chat/completions", {**request, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def generate(self, tokens: list[int], n: int = 8, **body: Any) -> Reply:
        sampling = {"max_new_tokens": n, "temperature": 0, "ignore_eos": True, **body.pop("sampling", {})}
        answer = self.call("POST", "/generate", {"input_ids": tokens, "sampling_params": sampling, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def state(self) -> dict[str, Any]:
        return self.call("GET", "/pbkv/state").json()

    def alive(self) -> bool:
        return self.process.poll() is None and self.call("GET", "/health").status_code == 200

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Exit code after a signal."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(signal.SIGKILL if kind else signal.SIGTERM)
