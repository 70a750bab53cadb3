"""One workflow of several agents on any server with the OpenAI API: names its calls, and ends it however the program leaves it."""

import argparse
import json
import sys
import urllib.request
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from openai import APIConnectionError, OpenAI

Message = dict[str, str]


class Workflow:
    """`with Workflow(url) as workflow: workflow.ask("planner", messages)`. The name must be new for each run."""

    def __init__(self, url: str, name: str = "") -> None:
        self.url = url.rstrip("/")
        self.name = name or f"run-{uuid.uuid4().hex[:12]}"
        self.calls = self.prompt_tokens = self.cached_tokens = 0
        self._client = OpenAI(base_url=f"{self.url}/v1", api_key="none")
        self._model = ""
        self._ended = False

    def ask(self, agent: str, messages: Sequence[Message], *, final: bool = False, max_tokens: int = 48) -> str:
        """The agent's answer. `final` on the last call, where that is known, ends the workflow with it."""
        self._model = self._model or self._client.models.list().data[0].id
        chat: Any = self._client.chat.completions
        answer = chat.create(
            model=self._model, messages=list(messages), max_tokens=max_tokens,
            extra_body={"custom_params": {"pbkv": {"workflow": self.name, "agent": agent, "final": final}}},
        )
        self._ended = final
        self.calls += 1
        self.prompt_tokens += answer.usage.prompt_tokens
        details = answer.usage.prompt_tokens_details
        self.cached_tokens += (details.cached_tokens or 0) if details else 0
        return answer.choices[0].message.content or ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Without a call marked `final`, and after an error, the server has to be told: it would keep the KV until the idle limit."""
        if self.calls and not self._ended:
            self._close()
        self._client.close()

    def _close(self) -> None:
        body = json.dumps({"session_id": self.name}).encode()
        request = urllib.request.Request(f"{self.url}/close_session", body, {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except OSError as error:
            print(f"{self.name} could not be ended ({error}); it ends by itself after a while", file=sys.stderr)

    def summary(self) -> str:
        """What it cost, as JSON."""
        counts = {"calls": self.calls, "prompt_tokens": self.prompt_tokens, "cached_tokens": self.cached_tokens}
        return json.dumps({"workflow": self.name, **counts})


def arguments(about: str) -> argparse.Namespace:
    """Options all examples have."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="the server, without /v1")
    parser.add_argument("--name", default="", help="name of the workflow; default: a new one")
    return parser.parse_args()


def run(about: str, program: Any) -> None:
    """Run `program(workflow)` and print what it cost; one sentence when there is no server."""
    args = arguments(about)
    try:
        with Workflow(args.url, args.name) as workflow:
            program(workflow)
            print(workflow.summary())
    except APIConnectionError:
        sys.exit(f"{args.url} does not answer; start one with: pbkv serve --embedded")
