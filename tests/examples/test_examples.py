"""The example programs against the embedded server: they run, name their calls, find earlier text in the cache and end their workflows."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pbkv.events.schema import REASONS, Namespace
from tests.server.test_identity import names
from tests.support.embedded import EmbeddedServer
from tests.support.server import Events

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Program: (agents in order, why the workflow ends).
PROGRAMS = {
    "plain_client": (["reader", "critic", "writer"], "final"),
    "graph_loop": (["planner", *["searcher", "judge"] * 3, "writer"], "final"),
    "group_chat": ([*["coder", "tester"] * 3, "reviewer"], "closed"),
}


def run_example(program: str, *args: str, code: str = "") -> "subprocess.CompletedProcess[str]":
    """As a user does; `code` runs instead of the program, beside it."""
    command = [sys.executable, "-c", code] if code else [sys.executable, str(EXAMPLES / f"{program}.py")]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "PYTHONPATH": str(EXAMPLES)}
    return subprocess.run([*command, *args], capture_output=True, text=True, env=environment, timeout=120, check=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("server"), "--speed", "50") as running:
        yield running


@pytest.fixture(scope="module")
def events(server: EmbeddedServer) -> Iterator[Events]:
    """One for all tests: a name travels once, with its first use."""
    stream = Events(server.state()["events"])
    yield stream
    stream.close()


def rows(events: Events, kind: str, workflow: str) -> list[dict[str, Any]]:
    known = names(events, Namespace.WORKFLOW)
    return [r for r in events.rows[kind] if known.get(r["workflow"]) == workflow]


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_runs_and_ends_its_workflow(server: EmbeddedServer, events: Events, program: str) -> None:
    agents, reason = PROGRAMS[program]
    done = run_example(program, "--url", server.url)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["calls"] == len(agents)
    assert said["cached_tokens"] > 0
    events.drain()
    known = names(events, Namespace.AGENT)
    assert [known[r["agent"]] for r in rows(events, "call", said["workflow"])] == agents
    assert [REASONS[r["reason"]] for r in rows(events, "workflow", said["workflow"])][-1] == reason
    assert server.state()["workflows"] == 0


def test_a_name_can_be_given(server: EmbeddedServer) -> None:
    done = run_example("group_chat", "--url", f"{server.url}/", "--name", "mine")
    assert json.loads(done.stdout)["workflow"] == "mine"


def test_a_program_that_fails_ends_its_workflow_all_the_same(server: EmbeddedServer, events: Events) -> None:
    code = (
        "import sys; from workflow import run\n"
        "def program(workflow):\n"
        "    workflow.ask('a', [{'role': 'user', 'content': 'hello'}])\n"
        "    raise RuntimeError('the tool broke')\n"
        "run('', program)"
    )
    done = run_example("", "--url", server.url, "--name", "broken", code=code)
    assert done.returncode == 1
    assert "the tool broke" in done.stderr
    events.drain()
    assert [REASONS[r["reason"]] for r in rows(events, "workflow", "broken")][-1] == "closed"


def test_a_program_that_asked_nothing_closes_nothing(server: EmbeddedServer) -> None:
    done = run_example("", "--url", server.url, code="from workflow import run\nrun('', lambda workflow: None)")
    assert (done.returncode, json.loads(done.stdout)["calls"]) == (0, 0)


@pytest.mark.parametrize("program", ["graph_loop", "group_chat"])
def test_without_a_server_it_says_so(program: str, port: int) -> None:
    done = run_example(program, "--url", f"http://127.0.0.1:{port}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == f"http://127.0.0.1:{port} does not answer; start one with: pbkv serve --embedded"


def test_a_server_that_went_away_is_said_and_hides_no_error(server: EmbeddedServer, port: int) -> None:
    code = (
        "import sys\n"
        "from workflow import Workflow\n"
        "with Workflow(sys.argv[1], 'left') as workflow:\n"
        "    workflow.ask('a', [{'role': 'user', 'content': 'hello'}])\n"
        "    workflow.url = sys.argv[2]\n"
        "    raise RuntimeError('the tool broke')\n"
    )
    done = run_example("", server.url, f"http://127.0.0.1:{port}", code=code)
    server.call("POST", "/close_session", {"session_id": "left"})
    assert done.returncode == 1
    assert "left could not be ended" in done.stderr
    assert "the tool broke" in done.stderr
