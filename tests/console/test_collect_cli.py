"""`pbkv collect`: what is refused, and waiting for a server that is not up yet."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from collector.service import Collector
from console.cli.collect import discover
from console.main import run
from pbkv.errors import PbkvError, UsageError
from tests.support.collector import eventually
from tests.support.control import ControlServer, MemoryBackend
from tests.support.ports import free_port
from tests.support.stream import LiveProducer

PAIR = "tcp://127.0.0.1:5601,tcp://127.0.0.1:5602"


@pytest.mark.parametrize(("args", "words"), [
    ([], ["--server", "--connect"]),
    (["--connect", "tcp://x:1"], ["EVENTS,REPLAY"]),
    (["--connect", PAIR, "--listen", "nowhere"], ["listen address 'nowhere'"]),
    (["--connect", PAIR, "--connect", PAIR], ["named twice"]),
    (["--server", "127.0.0.1:1"], ["expected http://HOST:PORT"]),
    (["--connect", PAIR, "--keep", "5"], ["--keep '5'", "24h"]),
    (["--connect", PAIR, "--keep-bytes", "5"], ["--keep-bytes '5'", "16GiB"]),
    (["--connect", PAIR, "--archive-keep", "7d"], ["--archive DIR"]),
    (["--connect", PAIR, "--tls", "cert.pem"], ["expected CERT,KEY"]),
    (["--connect", PAIR, "--tls", "no.pem,no.key"], ["TLS file 'no.pem'", "cannot be read"]),
    (["--connect", PAIR, "--archive", "/proc/x"], ["archive '/proc/x'", "name another folder"]),
    (["--status", "--listen", "nowhere"], ["expected HOST:PORT"]),
])
def test_bad_input(args: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["collect", "--db", str(tmp_path / "x.duckdb"), *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1
    for word in words:
        assert word in captured.err


def test_a_port_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["collect", "--db", str(tmp_path / "x.duckdb"), "--connect", PAIR, "--listen", f"127.0.0.1:{port}"]) == 2
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


def test_a_file_that_is_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.duckdb"
    path.write_text("no database" * 1000)
    assert run(["collect", "--db", str(path), "--connect", PAIR, "--listen", f"127.0.0.1:{free_port()}"]) == 2
    assert "not a DuckDB file" in capsys.readouterr().err


def test_a_server_names_its_endpoints() -> None:
    backend = MemoryBackend(state={"events": "tcp://a:1", "replay": "tcp://a:2"})
    with ControlServer(backend=backend) as server:
        assert discover(server.url, None, Event()) == [("tcp://a:1", "tcp://a:2")]


def test_a_server_of_several_replicas_names_the_endpoints_of_all() -> None:
    streams = [["tcp://a:1", "tcp://a:2"], ["tcp://a:3", "tcp://a:4"]]
    backend = MemoryBackend(state={"events": "tcp://a:1", "replay": "tcp://a:2", "streams": streams})
    with ControlServer(backend=backend) as server:
        assert discover(server.url, None, Event()) == [("tcp://a:1", "tcp://a:2"), ("tcp://a:3", "tcp://a:4")]


def test_a_replica_without_endpoints() -> None:
    backend = MemoryBackend(state={"streams": [["tcp://a:1", "tcp://a:2"], [None, None]]})
    with ControlServer(backend=backend) as server, pytest.raises(PbkvError, match="names no event endpoints"):
        discover(server.url, None, Event())


def test_a_server_without_endpoints() -> None:
    with ControlServer() as server, pytest.raises(PbkvError, match="names no event endpoints"):
        discover(server.url, None, Event())


def test_a_server_that_wants_a_token() -> None:
    with ControlServer(token="s3cret") as server, pytest.raises(UsageError, match="authorization"):
        discover(server.url, None, Event())


def test_waiting_for_a_server_ends_when_told_to() -> None:
    stop = Event()
    stop.set()
    assert discover(f"http://127.0.0.1:{free_port()}", None, stop) == []


def test_a_server_that_is_not_up_yet_is_waited_for_and_an_interrupt_exits_130(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "console.main", "collect", "--server", url, "--db", str(tmp_path / "x.duckdb")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(f"waiting: server {url} does not answer")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


def test_without_a_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["collect", "--connect", PAIR]) == 2
    assert "--db FILE" in capsys.readouterr().err


def test_status_of_a_running_collector(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with LiveProducer(speed=20) as producer:
        collector = Collector([(producer.endpoint, producer.replay_endpoint)], tmp_path / "e.duckdb", "127.0.0.1:0", tmp_path)
        monkeypatch.setenv("PBKV_COLLECTOR_TOKEN", collector.token_file.read_text().strip())
        try:
            eventually(lambda: collector.ingest.commits, "a commit")
            address = collector.source.removeprefix("grpc://")
            assert run(["collect", "--status", "--listen", address]) == 0
            text = capsys.readouterr().out
            assert "per second" in text and "synthetic-0/0" in text and "lag" in text
            assert run(["collect", "--status", "--listen", address, "--json"]) == 0
            status = json.loads(capsys.readouterr().out)
            assert status["rows"]["batch"] > 0 and status["archive"] is None
        finally:
            collector.close()
    assert run(["collect", "--status", "--listen", address]) == 1
    assert "does not answer" in capsys.readouterr().err
