"""Knobs of a running server: applied at a step, versioned, all or nothing, reverted when not confirmed; and starts that must fail."""

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zmq
from pbkv_sglang_cpu.launch import server_command

from pbkv.control.client import ControlClient, parse_assignments
from pbkv.errors import StaleVersion, Unreachable, UsageError
from pbkv.events.schema import SOURCES, Namespace
from tests.support.server import Events, Server, wait_for

pytestmark = pytest.mark.server


@pytest.fixture
def client(plugin: Server) -> ControlClient:
    return ControlClient(plugin.url, actor="test")


def test_change_is_read_back_with_its_step_and_seen_in_the_stream(plugin: Server, client: ControlClient) -> None:
    events = Events(plugin.state()["events"])
    before = client.knobs()
    result = client.set({"gamma": 0.55, "k": 5}, reason="trial")
    after = client.knobs()
    assert after["version"] == result["version"] == before["version"] + 1
    assert after["step"] == result["step"] >= before["step"]
    assert (after["knobs"]["gamma"]["value"], after["knobs"]["k"]["value"]) == (0.55, 5)
    events.drain()
    text = {r["id"]: r["text"].rstrip(b"\0").decode() for r in events.rows["name"] if r["namespace"] == Namespace.KNOB}
    seen = [(text[r["name"]], text[r["new"]], text[r["actor"]], text[r["reason"]]) for r in events.rows["knob"]]
    assert seen == [("gamma", "0.55", "test", "trial"), ("k", "5", "test", "trial")]
    assert [r["sched_step"] for r in events.rows["knob"]] == [result["step"]] * 2
    events.close()
    client.revert()
    assert client.knobs()["knobs"]["gamma"]["value"] == before["knobs"]["gamma"]["value"]


@pytest.mark.parametrize(
    ("changes", "status", "part"),
    [
        ({"gamma": 1.5}, 422, "knob gamma = 1.5: expected a number from 0 to 1"),
        ({"k": 0}, 422, "knob k = 0"),
        ({"gamma": "0.5"}, 422, "knob gamma = '0.5'"),
        ({"nope": 1}, 422, "no such knob"),
        ({}, 422, "changes"),
        ({"gamma": 0.5, "k": 99}, 422, "knob k = 99"),
    ],
)
def test_bad_change_changes_nothing(plugin: Server, changes: dict[str, Any], status: int, part: str) -> None:
    before = plugin.call("GET", "/pbkv/knobs").json()
    answer = plugin.call("PATCH", "/pbkv/knobs", {"if_version": before["version"], "changes": changes, "actor": "t"})
    assert answer.status_code == status
    assert part in answer.json()["error"]
    after = plugin.call("GET", "/pbkv/knobs").json()
    assert (after["version"], after["knobs"]) == (before["version"], before["knobs"])


def test_two_operators_at_once_one_wins(plugin: Server) -> None:
    version = ControlClient(plugin.url).knobs()["version"]
    outcomes: Counter[str] = Counter()

    def change(gamma: float) -> None:
        try:
            ControlClient(plugin.url, actor=f"op-{gamma}").set({"gamma": gamma}, if_version=version)
            outcomes["won"] += 1
        except StaleVersion:
            outcomes["stale"] += 1

    operators = [threading.Thread(target=change, args=(0.1 * n,)) for n in range(1, 7)]
    for operator in operators:
        operator.start()
    for operator in operators:
        operator.join()
    assert outcomes == {"won": 1, "stale": 5}


def test_unconfirmed_change_is_taken_back_by_the_engine(plugin: Server, client: ControlClient) -> None:
    events = Events(plugin.state()["events"])
    old = client.knobs()["knobs"]["prefetch_budget"]["value"]
    version = client.set({"prefetch_budget": 0}, expires_s=1)["version"]
    wait_for(lambda: client.knobs()["knobs"]["prefetch_budget"]["value"] == old)
    with pytest.raises(StaleVersion):
        client.confirm(version)
    assert [SOURCES[r["source"]] for r in events.drain().rows["knob"]] == ["manual", "expiry"]
    events.close()
    kept = client.set({"prefetch_budget": 4096}, expires_s=60)
    client.confirm(kept["version"])
    client.set({"prefetch_budget": old})


def test_idle_workflow_is_retired_by_the_clock(plugin: Server, client: ControlClient) -> None:
    plugin.chat("zzz", n=2, custom_params={"pbkv": {"workflow": "sleeper", "agent": "a"}})
    assert plugin.state()["workflows"] >= 1
    client.set({"retire_idle_s": 1})
    wait_for(lambda: plugin.state()["workflows"] == 0)
    client.set({"retire_idle_s": 600})


def test_flush_cache_and_go_on(plugin: Server) -> None:
    plugin.chat("one two three " * 20, custom_params={"pbkv": {"workflow": "flushed", "agent": "a"}})
    wait_for(lambda: plugin.call("POST", "/flush_cache").status_code == 200)
    assert plugin.state()["leaves"] == 0
    for final in (False, True):
        plugin.chat("one two three " * 20, custom_params={"pbkv": {"workflow": "flushed", "agent": "a", "final": final}})
    assert plugin.alive()


def refused(model: Path, tmp_path: Path, port: int, config: object, *extra: str, code: str = "") -> str:
    """What a server prints that must not start; `code` runs in each of its processes first."""
    settings = tmp_path / "pbkv.json"
    settings.write_text(config if isinstance(config, str) else json.dumps(config))
    argv, env = server_command(model, port, plugin=True, config=settings, extra=extra)
    if code:
        (tmp_path / "sitecustomize.py").write_text(code)
        env["PYTHONPATH"] = str(tmp_path)
    run = subprocess.run([sys.executable, *argv[1:]], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode != 0
    return run.stderr + run.stdout


def test_wrong_sglang_version_stops_the_start(tiny_model: Path, tmp_path: Path, port: int) -> None:
    code = "from pbkv.sglang import compat\ncompat.version = lambda name: '0.5.22'\n"
    text = refused(tiny_model, tmp_path, port, {}, code=code)
    assert "pbkv: sglang 0.5.22 is installed; this plugin is written for 0.5.23" in text
    assert "Traceback" not in text.split("pbkv: ")[1]


def test_missing_hook_target_stops_the_start(tiny_model: Path, tmp_path: Path, port: int) -> None:
    code = "from pbkv.sglang import compat\ncompat.TARGETS['sglang.srt.managers.scheduler.Scheduler.vanished'] = ()\n"
    text = refused(tiny_model, tmp_path, port, {}, code=code)
    assert "pbkv: sglang 0.5.23 has no sglang.srt.managers.scheduler.Scheduler.vanished" in text


def test_bad_settings_stop_the_start(tiny_model: Path, tmp_path: Path, port: int) -> None:
    with zmq.Context() as context, context.socket(zmq.PUB) as taken:
        taken.bind("tcp://127.0.0.1:*")
        endpoint = taken.getsockopt_string(zmq.LAST_ENDPOINT)
        assert f"event endpoint '{endpoint}' cannot be bound" in refused(tiny_model, tmp_path, port, {"events": endpoint})


def test_off_loopback_needs_a_token(tiny_model: Path, tmp_path: Path, port: int) -> None:
    assert "is not loopback: set token_file" in refused(tiny_model, tmp_path, port, {}, "--host", "0.0.0.0")


def test_client_without_a_server() -> None:
    client = ControlClient("http://127.0.0.1:1")
    with pytest.raises(Unreachable, match="does not answer"):
        client.knobs()
    with pytest.raises(UsageError, match="no such knob"):
        parse_assignments(["nope=1"])
