"""`pbkv serve -- FLAGS` on a real server of a mixture of experts: it becomes it, calls find it by every channel, it ends as told."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pbkv.events.schema import REASONS, Namespace
from tests.examples.test_examples import PROGRAMS, run_example
from tests.server.test_identity import hints, names
from tests.support.ports import free_port
from tests.support.processes import gone, until
from tests.support.server import Events, Server, _wait_until_up, end_group

pytestmark = pytest.mark.server

CPU = (
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--dtype", "float32",
    "--disable-cuda-graph", "--skip-server-warmup", "--sleep-on-idle", "--page-size", "16", "--max-total-tokens", "3072",
    "--max-running-requests", "8", "--context-length", "4096", "--chunked-prefill-size", "512", "--hicache-ratio", "4",
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from pbkv_sglang_cpu.model import make_model

    model = make_model(tmp_path_factory.mktemp("model") / "moe", kind="moe")
    with tempfile.TemporaryDirectory() as folder:
        path, port = Path(folder), free_port()
        (path / "pbkv.json").write_text(json.dumps({"server": "served", "knobs": {"policy": "first_use"}}))
        command = [sys.executable, "-m", "console.main", "serve", "--pbkv-config", "pbkv.json", "--"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SGLANG_", "PBKV_CONFIG"))}
        environment |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
        with (path / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "--model-path", str(model), "--port", str(port), *CPU], env=environment, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True, cwd=folder,
            )
        try:
            server = Server(process, port, path / "log")
            _wait_until_up(server)
            yield server
        finally:
            end_group(process)


@pytest.fixture(scope="module")
def stream(served: Server) -> Iterator[Events]:
    """One for all tests: a name travels once, with its first use."""
    events = Events(served.state()["events"])
    yield events
    events.close()


@pytest.fixture
def events(stream: Events) -> Events:
    """What happens from here on; names stay known."""
    stream.drain()
    for kind in stream.rows.keys() - {"name"}:
        stream.rows[kind].clear()
    return stream


def workflow_of_calls(events: Events) -> list[tuple[str, int]]:
    known = names(events.drain(), Namespace.WORKFLOW)
    return [(known.get(r["workflow"], ""), r["final"]) for r in events.rows["call"]]


def ends(events: Events) -> list[tuple[str, str]]:
    known = names(events, Namespace.WORKFLOW)
    return [(known[r["workflow"]], REASONS[r["reason"]]) for r in events.rows["workflow"] if r["reason"]]


def chat(server: Server, headers: dict[str, str], **body: Any) -> str:
    request = {"model": "m", "messages": [{"role": "user", "content": "hello there, server " * 4}], "max_tokens": 4, "temperature": 0}
    answer = server.call("POST", "/v1/chat/completions", {**request, **body}, **headers)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_the_command_has_become_the_server(served: Server) -> None:
    assert b"sglang.launch_server" in Path(f"/proc/{served.process.pid}/cmdline").read_bytes()
    assert served.log().startswith("pbkv serve sets\n  --radix-cache-backend pbkv")
    state = served.state()
    assert (state["server"], state["engine"]) == ("served", "sglang")
    assert served.call("GET", "/pbkv/knobs").json()["knobs"]["policy"]["value"] == "first_use"


def test_what_it_set_is_in_force(served: Server) -> None:
    info = served.call("GET", "/server_info").json()
    assert (info["radix_cache_backend"], info["enable_hierarchical_cache"], info["hicache_io_backend"]) == ("pbkv", True, "direct")
    assert "sglang:" in served.call("GET", "/metrics").text
    text = served.generate(list(range(40, 104)))
    again = served.generate(list(range(40, 104)))
    assert again["output_ids"] == text["output_ids"]
    assert again["meta_info"]["cached_tokens"] > 0


def test_answers_survive_eviction_to_the_host_and_back(served: Server) -> None:
    prompt = [33 + n * 7 % 90 for n in range(600)]
    cold = served.generate(prompt, 16)["output_ids"]
    for fill in range(8):
        served.generate([33 + (n * (fill + 11)) % 90 for n in range(600)], 4)
    warm = served.generate(prompt, 16)
    assert warm["output_ids"] == cold
    assert warm["meta_info"]["cached_tokens_details"]["host"] > 0


@pytest.mark.parametrize("stream_it", [False, True])
def test_a_dynamo_session_until_its_final_request(served: Server, events: Events, stream_it: bool) -> None:
    name = f"chain-{stream_it}"
    for final in ("false", "true"):
        chat(served, {"X-Dynamo-Session-ID": name, "X-Dynamo-Session-Final": final}, stream=stream_it)
    assert workflow_of_calls(events) == [(name, 0), (name, 1)]
    assert ends(events) == [(name, "final"), (name, "final")]


@pytest.mark.parametrize("path", ["/v1/completions", "/generate", "/v1/messages"])
def test_headers_count_on_every_route(served: Server, events: Events, path: str) -> None:
    body = {
        "/v1/completions": {"model": "m", "prompt": "x" * 64, "max_tokens": 2},
        "/generate": {"input_ids": list(range(64)), "sampling_params": {"max_new_tokens": 2}},
        "/v1/messages": {"model": "m", "messages": [{"role": "user", "content": "x" * 64}], "max_tokens": 2},
    }[path]
    answer = served.call("POST", path, body, **{"X-Dynamo-Session-ID": path, "X-Dynamo-Session-Final": "1"})
    assert answer.status_code == 200, answer.text
    assert workflow_of_calls(events) == [(path, 1)]


@pytest.mark.parametrize("body", [{"program_id": "p-1"}, {"extra_body": {"program_id": "p-1"}}, {"program_id": 71}])
def test_a_program_until_it_is_released(served: Server, events: Events, body: dict[str, Any]) -> None:
    chat(served, {}, **body)
    name = "71" if body.get("program_id") == 71 else "p-1"
    for released in (True, False):
        answer = served.call("POST", "/programs/release", {"program_id": body.get("program_id", "p-1")})
        assert (answer.status_code, answer.json()) == (200, {"program_id": name, "released": released})
    assert workflow_of_calls(events) == [(name, 0)]
    assert ends(events) == [(name, "closed"), (name, "closed")]


def test_the_strongest_of_several_identities_counts(served: Server, events: Events) -> None:
    body: dict[str, Any] = {"custom_params": {"pbkv": {"workflow": "by-params"}}, "session_id": "by-session", "program_id": "by-program"}
    headers = {"X-Dynamo-Session-ID": "by-header"}
    for strongest in ("custom_params", "session_id", "X-Dynamo-Session-ID", "program_id"):
        chat(served, headers, **body)
        body.pop(strongest, None)
        headers.pop(strongest, None)
    served.generate(list(range(64)), kv_hints=hints(workflow="by-hint"), program_id="by-program", session_id="by-session")
    expected = ["by-params", "by-session", "by-header", "by-program", "by-hint"]
    assert [name for name, _ in workflow_of_calls(events)] == expected
    for name in expected:
        assert served.call("POST", "/close_session", {"session_id": name}).status_code == 200
    assert served.state()["workflows"] == 0


def test_a_malformed_program_is_served_and_counted(served: Server) -> None:
    before = served.state()["counts"]
    chat(served, {}, program_id=[["deep"]])
    assert served.call("POST", "/programs/release", {"program_id": [["deep"]]}).status_code == 400
    after = served.state()["counts"]
    assert (after["malformed"], after["unattributed"]) == (before["malformed"] + 1, before["unattributed"] + 1)


def test_an_example_program(served: Server, events: Events) -> None:
    agents, reason = PROGRAMS["group_chat"]
    done = run_example("group_chat", "--url", served.url)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["calls"] == len(agents) and said["cached_tokens"] > 0
    assert workflow_of_calls(events) == [(said["workflow"], 0)] * len(agents)
    assert ends(events)[-1] == (said["workflow"], reason)


def test_a_signal_ends_the_server_and_all_it_started(served: Server) -> None:
    """The last test of this file: it takes the server away."""
    group = str(served.process.pid)
    members = subprocess.run(["pgrep", "-g", group], capture_output=True, text=True, check=False).stdout.split()
    assert len(members) > 2
    served.process.send_signal(signal.SIGTERM)
    served.process.wait(120)
    until(lambda: all(gone(int(pid)) for pid in members), "all of it has ended")
