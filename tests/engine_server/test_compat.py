"""The whole chain behind the embedded server: real collector, DuckDB, `pbkv top`, `pbkv knobs`, and the end of the process."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.client import open as open_source
from console.main import run
from tests.support.collector import CollectorProcess, eventually
from tests.support.embedded import EmbeddedServer, serve_command

SIZES = ("--device-tokens", "3072", "--host-tokens", "6144", "--context-length", "2048", "--speed", "10")
AGENTS = ("plan", "code", "test")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("server"), *SIZES) as running:
        yield running


def pbkv(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "console.main", *args], capture_output=True, text=True, check=False, timeout=60)


def converse(server: EmbeddedServer, workflow: str, turns: int, final: bool = True) -> list[int]:
    """Cached tokens of each call of one workflow whose agents take turns over a shared, growing text."""
    text, cached = f"Report {workflow}: " + "the tests fail. " * 12, list[int]()
    for turn in range(turns):
        identity = {"workflow": workflow, "agent": AGENTS[turn % 3], "final": final and turn == turns - 1}
        answer = server.chat(text, n=24, custom_params={"pbkv": identity})
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        text += " " + answer["choices"][0]["message"]["content"]
    return cached


def test_the_chain_from_call_to_screen(server: EmbeddedServer, tmp_path: Path) -> None:
    state = server.state()
    with CollectorProcess([(state["events"], state["replay"])], tmp_path / "e.duckdb") as collector:
        cached = converse(server, "one", 6)
        assert cached == sorted(cached) and cached[0] < cached[-1]
        for n in range(12):
            converse(server, f"more-{n}", 5, final=n % 4 != 0)
        changed = pbkv("knobs", "set", "--server", server.url, "gamma=0.6", "--reason", "trial", "--json")
        assert changed.returncode == 0, changed.stderr
        stored(collector, state["epoch"], calls=66)
        top = pbkv("top", collector.source, "--once", "--json", "--token-file", collector.ready["token_file"])
        assert top.returncode == 0, top.stderr
        assert (json.loads(top.stdout)["server"]["name"], json.loads(top.stdout)["server"]["engine"]) == ("under-test", "embedded")
        _, status, _ = collector.stop()
    assert (status["gaps"], status["lost"]) == (0, 0)
    with open_source(str(tmp_path / "e.duckdb")) as reader:
        sql = "SELECT device_hit_tokens + host_hit_tokens AS cached FROM call WHERE workflow = 'one' ORDER BY step"
        calls = reader.sql(sql).to_pylist()
        assert [c["cached"] for c in calls] == cached
        rows = reader.status()["rows"]
        assert all(rows[kind] for kind in ("call", "page", "workflow", "prediction", "node_score", "eviction", "occupancy", "batch"))
        (knob,) = reader.sql("SELECT name, new, reason, sched_step FROM knob").to_pylist()
        assert knob == {"name": "gamma", "new": "0.6", "reason": "trial", "sched_step": json.loads(changed.stdout)["step"]}
        evicted: Any = reader.sql("SELECT sum(tokens) AS n FROM eviction WHERE from_tier = 'device'").to_pylist()[0]["n"]
        assert evicted == server.state()["counts"]["evicted_tokens"]
    once = pbkv("top", str(tmp_path / "e.duckdb"), "--once", "--json")
    assert once.returncode == 0, once.stderr
    assert json.loads(once.stdout)["server"]["name"] == "under-test"


def stored(collector: CollectorProcess, epoch: int, calls: int) -> None:
    def all_there() -> bool:
        with collector.reader() as reader:
            return reader.sql("SELECT count(*) AS n FROM call WHERE epoch = $epoch", {"epoch": epoch}).to_pylist()[0]["n"] == calls

    eventually(all_there, f"{calls} calls are stored")


def test_knobs_from_the_command_line(server: EmbeddedServer) -> None:
    def get() -> dict[str, Any]:
        return json.loads(pbkv("knobs", "get", "--server", server.url, "--json").stdout)

    before = get()
    assert pbkv("knobs", "set", "--server", server.url, "k=2", "policy=lae").returncode == 0
    assert pbkv("knobs", "set", "--server", server.url, "k=99").returncode == 2
    assert pbkv("knobs", "set", "--server", server.url, "k=4", "--if-version", str(before["version"])).returncode == 2
    now = get()
    assert (now["knobs"]["k"]["value"], now["knobs"]["policy"]["value"]) == (2, "lae")
    assert pbkv("knobs", "revert", "--server", server.url).returncode == 0
    assert get()["knobs"]["k"]["value"] == before["knobs"]["k"]["value"]
    history = json.loads(pbkv("knobs", "history", "--server", server.url, "--json").stdout)
    assert [h["source"] for h in history][-2:] == ["revert", "revert"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_cleanly_with_calls_under_way(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with EmbeddedServer(tmp_path, "--speed", "0.01") as server:
        import socket

        body = json.dumps({"messages": [{"role": "user", "content": "slow"}], "max_tokens": 1000}).encode()
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
            client.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            eventually(lambda: "num_running_reqs" in server.call("GET", "/metrics").text, "the server answers")
            assert server.stop(number) == code
        assert "Traceback" not in server.log()


def test_without_embedded_it_says_how_sglang_is_started() -> None:
    done = pbkv("serve")
    assert done.returncode == 2
    assert "pbkv serve -- --model-path MODEL" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(("args", "says"), [
    (["--model-preset", "gpt@abacus"], "gpt@abacus"), (["--speed", "0"], "--speed"), (["--speed", "nan"], "--speed"),
    (["--device-tokens", "4"], "device_tokens = 4"), (["--page-size", "0"], "page_size = 0"), (["--policy", "belady"], "knob policy"),
    (["--write-policy", "never"], "write_policy"), (["--config", "/no/such/file"], "/no/such/file"),
    (["--context-length", "0"], "--context-length"),
    (["--host", "0.0.0.0"], "is not loopback: set token_file"), (["--host", "no.such.host.invalid"], "is not loopback"),
    (["--max-running", "0"], "max_running"),
])
def test_bad_usage_is_one_sentence_and_exit_2(args: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--embedded", "--port", "0", *args]) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""


def test_a_taken_port_is_named(server: EmbeddedServer) -> None:
    port = server.url.rpartition(":")[2]
    done = subprocess.run([*serve_command(), "--port", port], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert f"port {port}" in done.stderr


def test_with_a_token_control_wants_it_and_agents_do_not(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret")
    with EmbeddedServer(tmp_path, "--host", "0.0.0.0", config={"token_file": str(token)}) as server:
        assert [server.call("GET", "/pbkv/knobs", Authorization=f"Bearer {word}").status_code for word in ("s3cret", "other")] == [200, 403]
        assert server.call("GET", "/pbkv/state").status_code == 401
        assert server.chat("hello", n=4)["usage"]["completion_tokens"] == 4
        assert pbkv("knobs", "get", "--server", server.url, "--token-file", str(token)).returncode == 0


def test_without_events_it_serves_all_the_same(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, "--policy", "lru", config={"events": ""}) as server:
        assert server.chat("hello", n=4)["usage"]["completion_tokens"] == 4
        state = server.state()
        assert (state["events"], state["epoch"], state["counts"]["calls"]) == (None, None, 1)
        assert server.call("GET", "/pbkv/knobs").json()["knobs"]["policy"]["value"] == "lru"


def test_an_engine_that_fails_ends_the_server_with_a_sentence(tmp_path: Path) -> None:
    code = (
        "import sys; from console.main import run; from pbkv.engine.engine import Engine\n"
        "def advance(self, until): raise RuntimeError('the accounts are wrong')\n"
        "Engine.advance = advance; sys.exit(run(['serve', '--embedded', '--port', '0']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "the engine failed: RuntimeError('the accounts are wrong')"
    assert "Traceback" not in done.stderr


def test_it_needs_neither_torch_nor_sglang(tmp_path: Path) -> None:
    code = "import sys; from console.cli.serve import serve; import pbkv.engine.server.serve; print({'torch', 'sglang'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
