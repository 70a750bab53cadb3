"""Starting and refusing to start: one sentence and exit 2; Ctrl-C leaves nothing behind."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dashboards.__main__ import main
from dashboards.serve import address, bind, check_access, check_server
from pbkv.errors import UsageError
from tests.dashboards.processes import WebServer
from tests.support.stream import fill


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "a.duckdb"
    fill(path, 20, 1)
    return path


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


def test_a_missing_file(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert "no such file" in refused(capsys, str(tmp_path / "none.duckdb"))


def test_a_file_that_is_no_database(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = tmp_path / "a.duckdb"
    path.write_text("hello " * 4000)
    assert str(path) in refused(capsys, str(path))


@pytest.mark.parametrize("source", ["grpc://nowhere", "grpc://host:99999", "http://127.0.0.1:1"])
def test_a_source_that_is_none(capsys: pytest.CaptureFixture[str], source: str):
    assert "expected grpc://HOST:PORT" in refused(capsys, source)


def test_a_port_in_use(capsys: pytest.CaptureFixture[str], recording: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        message = refused(capsys, str(recording), "--port", port)
    assert message == f"error: --host 127.0.0.1 --port {port}: is in use; name another with --host or --port"


@pytest.mark.parametrize("port", ["-1", "70000"])
def test_a_port_that_is_none(capsys: pytest.CaptureFixture[str], recording: Path, port: str):
    assert "expected 0 to 65535" in refused(capsys, str(recording), "--port", port)


def test_a_host_that_is_not_ours(capsys: pytest.CaptureFixture[str], recording: Path):
    assert "cannot be bound" in refused(capsys, str(recording), "--host", "192.0.2.1", "--readonly", "--port", "0")


def test_off_loopback_editing_needs_a_token(capsys: pytest.CaptureFixture[str], recording: Path, tmp_path: Path):
    message = refused(capsys, str(recording), "--host", "0.0.0.0")
    assert "--token-file" in message
    assert "--readonly" in message
    empty = tmp_path / "token"
    empty.write_text("\n")
    assert "--token-file" in refused(capsys, str(recording), "--host", "0.0.0.0", "--token-file", str(empty))


def test_the_token_may_come_from_the_environment(capsys: pytest.CaptureFixture[str], recording: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PBKV_TOKEN", "geheim")
    # Past the access check, the next thing refused is the port.
    assert "expected 0 to 65535" in refused(capsys, str(recording), "--host", "0.0.0.0", "--port", "70000")


def test_access_rules():
    check_access("127.0.0.1", readonly=False, token=None)
    check_access("0.0.0.0", readonly=True, token=None)
    check_access("0.0.0.0", readonly=False, token="geheim")
    with pytest.raises(UsageError, match="off loopback"):
        check_access("gpu-7", readonly=False, token=None)


def test_a_token_file_that_is_missing(capsys: pytest.CaptureFixture[str], recording: Path, tmp_path: Path):
    assert "token file" in refused(capsys, str(recording), "--token-file", str(tmp_path / "none"))


def test_a_server_that_is_no_url(capsys: pytest.CaptureFixture[str], recording: Path):
    assert "expected a URL" in refused(capsys, str(recording), "--server", "127.0.0.1:30000")
    check_server("http://127.0.0.1:30000")
    check_server(None)


def test_help_is_quick_about_imports():
    heavy = "{'dash', 'torch', 'duckdb', 'pyarrow'}"
    code = f"import sys, dashboards.__main__ as m; m.parser(); bad = {heavy} & set(sys.modules); assert not bad, bad"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_app_loads_neither_torch_nor_sglang():
    code = "import sys, dashboards.app; bad = {'torch', 'sglang'} & set(sys.modules); assert not bad, bad"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_bind_takes_a_free_port_and_knows_its_address():
    with bind("127.0.0.1", 0) as listener:
        assert address("127.0.0.1", listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert address("::1", listener).startswith("http://[::1]:")


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(recording: Path, sign: signal.Signals):
    with WebServer(str(recording)) as web:
        assert web.url.startswith("http://127.0.0.1:")
        web.process.send_signal(sign)
        code = web.process.wait(30)
        assert "Traceback" not in web.log()
    assert code in (0, -sign)
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", web.port))
