"""The doctor against real things: this environment, a control server, a publisher, a collector, files."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from collector.service import Collector
from console.doctor import machine, packages, reach
from console.doctor.finding import Level
from console.main import run
from pbkv import __version__
from pbkv.events.publisher import Publisher
from tests.support.control import ControlServer, MemoryBackend
from tests.support.ports import free_port
from tests.support.stream import fill


def report(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit status and findings by topic of `pbkv doctor --json`."""
    status = run(["doctor", "--json", *args])
    return status, {f["topic"]: f for f in json.loads(capsys.readouterr().out)}


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    publisher = Publisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*")
    yield publisher
    publisher.close()


def backend(publisher: Publisher, **more: Any) -> MemoryBackend:
    endpoints = {"events": publisher.endpoint, "replay": publisher.replay_endpoint}
    return MemoryBackend(state={**endpoints, "pbkv": __version__, "dropped_messages": 0, **more})


def test_this_environment_is_fit(capsys: pytest.CaptureFixture[str], state_dir: Path) -> None:
    status, found = report(capsys)
    assert status == 0, found
    assert {"python", "packages", "extra web", "extra sglang", "duckdb", "state folder", "disk", "chromium", "tmux"} <= set(found)
    assert found["packages"]["level"] == "ok"
    assert found["extra sglang"]["found"] == "sglang 0.5.23"
    assert found["state folder"]["found"] == f"{state_dir} (made on first use)"
    assert not state_dir.exists(), "looking must not write"


def test_text_report_has_a_line_per_finding_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--server", "http://127.0.0.1:1"]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("ok    python")
    assert any(line.startswith("fail  server") and "does not answer" in line for line in lines)
    assert lines[-1].strip().startswith("-> ")
    assert err.strip().endswith("1 fail")


@pytest.mark.parametrize("version", [(3, 10), (2, 7)])
def test_old_python_fails(version: tuple[int, int]) -> None:
    assert packages.check_python(version).level is Level.FAIL


def test_missing_and_wrong_packages_are_named() -> None:
    wanted = [Requirement("duckdb>=1.5.5,<1.6"), Requirement("duckdb>=99"), Requirement("no-such-distribution>=1")]
    found = packages.problems(wanted)
    assert len(found) == 2
    assert found[0].startswith("duckdb 1.5.5, expected >=99")
    assert found[1] == "no-such-distribution is not installed"


def test_missing_extra_is_a_warning_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.metadata, "requires", lambda name: ["duckdb>=1", 'no-such-page>=1 ; extra == "web"'])
    found = {f.topic: f for f in packages.check_packages()}
    assert found["packages"].level is Level.OK
    assert found["extra web"].level is Level.WARN
    assert "pip install 'pbkv-console[web]'" in found["extra web"].todo


def test_missing_base_package_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.metadata, "requires", lambda name: ["no-such-base>=1"])
    assert next(iter(packages.check_packages())).level is Level.FAIL


def test_wrong_sglang_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.metadata, "requires", lambda name: ['sglang==0.5.99 ; extra == "sglang"'])
    found = {f.topic: f for f in packages.check_packages()}["extra sglang"]
    assert (found.level, found.found) == (Level.WARN, "sglang 0.5.23, expected ==0.5.99")


def test_duckdb_extension_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "EXTENSIONS", ("icu", "no_such_extension"))
    found = machine.check_duckdb()
    assert found.level is Level.FAIL
    assert "no_such_extension" in found.found
    assert "\n" not in found.found


def test_state_folder_below_a_file_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = list(machine.check_state(tmp_path / "file" / "state"))
    assert [f.level for f in found] == [Level.FAIL]
    assert "PBKV_STATE_DIR" in found[0].todo


@pytest.mark.parametrize(("mode", "level"), [(0o600, Level.OK), (0o644, Level.FAIL), (0o660, Level.FAIL)])
def test_token_must_be_the_owners_alone(tmp_path: Path, mode: int, level: Level) -> None:
    token = tmp_path / "token"
    token.write_text("secret-text")
    token.chmod(mode)
    found = {f.topic: f for f in machine.check_state(tmp_path)}["token"]
    assert found.level is level
    assert "secret-text" not in found.found + found.todo


@pytest.mark.parametrize(("free", "level"), [(100 << 30, "ok"), (1 << 30, "warn"), (1 << 20, "fail")])
def test_little_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    usage = type("Usage", (), {"free": free})
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: usage)
    assert {f.topic: f.level for f in machine.check_state(tmp_path)}["disk"] == level


def test_programs_missing_from_path_are_only_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert {f.level for f in machine.check_programs()} == {Level.WARN}


def test_default_port_in_use_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(reach, "PORTS", {"collect": (port, "--listen"), "web": (free_port(), "--port")})
        levels = [f.level for f in reach.check_ports()]
    assert levels == [Level.WARN, Level.OK]


def test_server_with_events_is_reachable(capsys: pytest.CaptureFixture[str], publisher: Publisher) -> None:
    with ControlServer(backend=backend(publisher)) as server:
        status, found = report(capsys, "--server", server.url)
    assert status == 0, found
    assert found["server"]["found"].startswith(f"{server.url}: test, test engine, step ")
    assert found["events endpoint"] == {"level": "ok", "topic": "events endpoint", "found": publisher.endpoint, "todo": ""}
    assert found["replay endpoint"]["level"] == "ok"


def test_closed_and_missing_event_endpoints_fail(publisher: Publisher) -> None:
    dead = f"tcp://127.0.0.1:{free_port()}"
    with ControlServer(backend=backend(publisher, events=dead, replay="")) as server:
        found = {f.topic: f for f in reach.check_server(server.url, None)}
    assert found["events endpoint"].level is Level.FAIL
    assert dead in found["events endpoint"].found
    assert found["replay endpoint"].level is Level.FAIL


def test_local_only_endpoint_other_version_and_drops_are_warnings(publisher: Publisher) -> None:
    odd = backend(publisher, events="ipc:///run/x", pbkv="0.0.1", dropped_messages=7)
    with ControlServer(backend=odd) as server:
        found = {f.topic: f for f in reach.check_server(server.url, None)}
    assert found["events endpoint"].level is Level.WARN
    assert found["versions"].found == f"server runs pbkv 0.0.1, this is {__version__}"
    assert "dropped 7 messages" in found["events"].found


def test_server_that_wants_a_token(publisher: Publisher, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "right").write_text("right\n")
    with ControlServer(token="right", backend=backend(publisher)) as server:
        refused = next(iter(reach.check_server(server.url, None)))
        status, _ = report(capsys, "--server", server.url, "--token-file", str(tmp_path / "right"))
    assert refused.level is Level.FAIL
    assert "token" in refused.found + refused.todo
    assert status == 0


def test_collector_and_file_as_source(publisher: Publisher, tmp_path: Path, state_dir: Path) -> None:
    db = tmp_path / "events.duckdb"
    fill(db, 5)
    assert next(iter(reach.check_source(str(db)))).level is Level.OK
    collector = Collector([(publisher.endpoint, publisher.replay_endpoint)], db, "127.0.0.1:0", state_dir)
    try:
        live = next(iter(reach.check_source(collector.source)))
    finally:
        collector.close()
    assert live.level is Level.OK, live
    assert live.found.endswith(" rows")


def test_empty_store_is_a_warning(publisher: Publisher, tmp_path: Path, state_dir: Path) -> None:
    collector = Collector([(publisher.endpoint, publisher.replay_endpoint)], tmp_path / "e.duckdb", "127.0.0.1:0", state_dir)
    try:
        found = next(iter(reach.check_source(collector.source)))
    finally:
        collector.close()
    assert found.level is Level.WARN
    assert "no event has come yet" in found.todo


@pytest.mark.parametrize("source", ["grpc://127.0.0.1:1", "missing.duckdb", "grpc://nowhere", "ftp://x"])
def test_source_that_cannot_be_read_fails_with_what_to_do(source: str) -> None:
    found = list(reach.check_source(source))
    assert [f.level for f in found] == [Level.FAIL]
    assert found[0].todo


def test_file_that_is_not_a_database(tmp_path: Path) -> None:
    file = tmp_path / "x.duckdb"
    file.write_bytes(os.urandom(4096))
    assert next(iter(reach.check_source(str(file)))).level is Level.FAIL


def test_bad_arguments_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--server", "127.0.0.1:30000"]) == 2
    assert "expected http://HOST:PORT" in capsys.readouterr().err
    assert run(["doctor", "--token-file", "/no/such/file"]) == 2
    assert "/no/such/file" in capsys.readouterr().err
