"""The load, as a process, against a small OpenAI endpoint that can refuse and be absent; the real engine is in test_demo."""

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from console.demo.driver import request
from pbkv.identity import identity_of
from pbkv.workloads.base import Call, Message
from pbkv.workloads.hover import Hover
from tests.support.ports import free_port
from tests.support.processes import until


class Endpoint:
    """/v1/chat/completions that keeps what it was asked; `status` other than 200 refuses."""

    def __init__(self, port: int, status: int = 200) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status = status
        app = FastAPI()
        app.post("/v1/chat/completions")(self._answer)
        self._server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    async def _answer(self, request: Request) -> JSONResponse:
        body = await request.json()
        if self.status != 200:
            return JSONResponse({"error": {"message": "this prompt is too long"}}, self.status)
        self.asked.append(body)
        choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "r" * body["max_tokens"]}}
        return JSONResponse({"id": "x", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]})

    def __enter__(self) -> "Endpoint":
        self._thread.start()
        until(lambda: self._server.started, "endpoint listens")
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)


def driver(port: int, *more: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "console.demo.driver", "--url", f"http://127.0.0.1:{port}", "--model", "m", "--pace", "0.02", *more]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_request_carries_identity_and_exact_length() -> None:
    call = Call("Scout", (Message("system", "s"), Message("user", "u")), 24, 0.5, True)
    made = request("m", "wf-1", call)
    assert made["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert (made["max_tokens"], made["temperature"], made["extra_body"]["ignore_eos"]) == (24, 0.0, True)
    identity = identity_of(made["extra_body"]["custom_params"])
    assert identity is not None
    assert (identity.workflow, identity.agent, identity.final) == ("wf-1", "Scout", True)


def test_plays_workflows_side_by_side_and_ends_on_sigterm(port: int) -> None:
    with Endpoint(port) as endpoint, driver(port, "--concurrency", "3") as process:
        until(lambda: len(endpoint.asked) >= 60, "calls come")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
    tally = json.loads(out)
    assert tally["calls"] == len(endpoint.asked)
    assert tally["workflows"] >= 3
    played: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for body in endpoint.asked:
        played[body["custom_params"]["pbkv"]["workflow"]].append(body)
    drawn = [play.name for play in itertools.islice(Hover().plays(), len(played) + 3)]
    assert set(played) <= set(drawn), "in order, at most three at a time"
    for calls in played.values():
        assert all(not c["custom_params"]["pbkv"]["final"] for c in calls[:-1])


def test_reply_becomes_the_agents_history(port: int) -> None:
    with Endpoint(port) as endpoint, driver(port, "--concurrency", "1", "--workload", "swebench") as process:
        until(lambda: len(endpoint.asked) >= 12, "calls come")
        process.terminate()
        process.communicate(timeout=30)
    replies = [m["content"] for body in endpoint.asked for m in body["messages"] if m["role"] == "assistant"]
    assert replies
    assert all(set(text) == {"r"} for text in replies)


def test_refusal_ends_it_with_the_engines_words(port: int) -> None:
    with Endpoint(port, status=400), driver(port) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.strip().startswith("the engine refused a call of hover-0-")
    assert "this prompt is too long" in err
    assert len(err.strip().splitlines()) == 1


def test_engine_that_is_gone_ends_it_after_some_tries() -> None:
    with driver(free_port(), "--concurrency", "1") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.strip() == "the engine has not answered 5 times in a row"


def test_engine_that_comes_back_is_used_again(port: int) -> None:
    with driver(port, "--concurrency", "2") as process, Endpoint(port) as endpoint:
        until(lambda: len(endpoint.asked) >= 5, "calls come although the engine was late")
        process.terminate()
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(out)["calls"] >= 5


@pytest.mark.parametrize("document", ["{", '{"history": []}'])
def test_bad_trace_exits_2_before_any_call(port: int, tmp_path: Path, document: str) -> None:
    (tmp_path / "t.json").write_text(document)
    with Endpoint(port) as endpoint, driver(port, "--trace", str(tmp_path)) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "t.json" in err
    assert endpoint.asked == []
