"""DuckDB's own protocol: the same guard, other DuckDB clients, and a runaway that costs a restart and no event."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from collector import client
from collector.quack import Quack, authorize_sql
from collector.store import Store
from collector.watchdog import RESTART, Watchdog, resident_bytes, supervise
from pbkv.errors import UsageError
from tests.collector.statements import ALLOWED, REFUSED
from tests.support.collector import eventually
from tests.support.faults import Counting, audit
from tests.support.ports import free_port
from tests.support.stream import fill

TOKEN = "token-of-the-test"
RUNAWAY = "SELECT count(*) FROM range(10000000000) a, range(100000) b WHERE a.range <> b.range"

_CLIENT = """
import json, sys, duckdb
from collector.extension import load
url, token, *statements = sys.argv[1:]
db = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
load(db, ("httpfs", "quack"), "quack")
answers = []
try:
    db.execute(f"ATTACH '{url}' AS r (TOKEN '{token}')")
    for sql in statements:
        try:
            answers.append(db.execute(sql).fetchall())
        except duckdb.Error as error:
            answers.append(str(error).splitlines()[0])
except duckdb.Error as error:
    answers.append("attach: " + str(error).splitlines()[0])
print(json.dumps(answers, default=str))
"""


def ask(url: str, *statements: str, token: str = TOKEN) -> list[Any]:
    """Answers of a client in a process of its own: client and server in one process would wait for each other for ever."""
    command = [sys.executable, "-c", _CLIENT, url, token, *statements]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)


@pytest.fixture(scope="module")
def guard() -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    db.execute(f"CREATE MACRO authorize(sid, q) AS {authorize_sql()}")
    return db


@pytest.mark.parametrize("sql", ALLOWED)
def test_the_guard_as_sql_admits(guard: duckdb.DuckDBPyConnection, sql: str):
    assert guard.execute("SELECT authorize('', ?)", [sql]).fetchone() == (True,)


def test_the_guard_as_sql_refuses(guard: duckdb.DuckDBPyConnection):
    admitted = [sql for sql, _ in REFUSED if guard.execute("SELECT authorize('', ?)", [sql]).fetchone() != (False,)]
    assert admitted == []


_SERVER = """
import sys
from pathlib import Path
from collector.quack import Quack
from collector.store import Store
store = Store(Path(sys.argv[1]), quack=Quack("127.0.0.1", int(sys.argv[2]), sys.argv[3]))
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("quack") / "e.duckdb"
    fill(path, seconds=20)
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(path), str(port), TOKEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout
    assert server.stdout.readline() == "up\n"
    yield f"quack:127.0.0.1:{port}"
    server.kill()
    server.communicate()


def test_tables_views_and_macros_are_read(served: str):
    answers = ask(
        served, "SELECT count(*) > 0 FROM r.call", "FROM r.query('SELECT count(*) > 0 FROM raw.page')",
        "FROM r.query('SELECT count(DISTINCT agent) > 1 FROM call WHERE status = ''done''')",
        "FROM r.query('SELECT count(*) >= 0 FROM calls_of(''x'')')",
    )
    assert answers == [[[True]]] * 4


@pytest.mark.parametrize(
    "sql",
    [
        "FROM r.query('DROP TABLE store.raw.call')", "FROM r.query('DELETE FROM store.raw.call')", "CREATE TABLE r.main.x AS SELECT 1",
        "FROM r.query('FROM enable_logging()')", "FROM r.query('SELECT 1; SELECT 2')", "FROM r.query('FROM quack_stop(''q'')')",
        "FROM r.query('SELECT sleep_ms(1)')", "FROM r.query('FROM read_text(''/etc/passwd'')')",
        "INSERT INTO r.raw.call SELECT * FROM r.raw.call",
    ],
)
def test_nothing_else_is(served: str, sql: str):
    (answer,) = ask(served, sql)
    assert isinstance(answer, str), answer
    assert ask(served, "FROM r.query('SELECT 1')") == [[[1]]]


def test_a_wrong_token(served: str):
    (answer,) = ask(served, "FROM r.query('SELECT 1')", token="another-token")
    assert answer.startswith("attach:") and "uthentication" in answer


def test_an_address_in_use_names_it_and_not_the_token(served: str, tmp_path: Path):
    port = int(served.rsplit(":", 1)[1])
    with pytest.raises(UsageError, match=f"quack address 127.0.0.1:{port}: cannot be served") as caught:
        Store(tmp_path / "e.duckdb", quack=Quack("127.0.0.1", port, TOKEN))
    assert TOKEN not in str(caught.value)


_STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    while _STARTED:
        process = _STARTED.pop()
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=60)


def collector(folder: Path, producer: Counting, *more: str) -> tuple[subprocess.Popen[str], str, str]:
    """A supervised `pbkv collect`: (its supervisor, source, quack URL)."""
    listen, quack = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    command = [
        sys.executable, "-m", "console.main", "collect", "--json", "--connect", f"{producer.endpoint},{producer.replay_endpoint}",
        "--db", str(folder / "e.duckdb"), "--listen", listen, "--quack", quack, *more,
    ]
    environment = {**os.environ, "PBKV_STATE_DIR": str(folder)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    _STARTED.append(process)
    assert process.stdout
    assert json.loads(process.stdout.readline())["quack"] == f"quack:{quack}"
    return process, f"grpc://{listen}", f"quack:{quack}"


def test_a_runaway_costs_a_restart_and_no_event(tmp_path: Path):
    with Counting(speed=10, seed=9) as producer:
        process, source, url = collector(tmp_path, producer, "--quack-limit", "2s")
        token = (tmp_path / "token").read_text().strip()
        assert ask(url, "FROM r.query('SELECT 1')", token=token) == [[[1]]]
        pid = _pid(source, token)
        runaway = subprocess.Popen([sys.executable, "-c", _CLIENT, url, token, f"FROM r.query('{RUNAWAY}')"], stdout=subprocess.DEVNULL)
        eventually(lambda: _pid(source, token) not in (pid, 0), "it was started again")
        runaway.kill()
        runaway.wait()
        assert ask(url, "FROM r.query('SELECT 1')", token=token) == [[[1]]]
        # A crash of the store's process is survived in the same way.
        pid = _pid(source, token)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: _pid(source, token) not in (pid, 0), "it was started once more")
        producer.stop()
        with client.open(source, token) as reader:
            mark = "SELECT max(seq) AS n FROM raw.high_water"
            eventually(lambda: reader.sql(mark).to_pylist()[0]["n"] == producer.writer.seq, "everything is stored")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        sent = producer.sent
    assert process.returncode == 0, err
    assert "ran for more than 2 s: SELECT count(*) FROM range" in err and f"ended with status {RESTART}" in err
    assert token not in out + err
    assert audit(tmp_path / "e.duckdb", sent, 0).lost == 0


def _pid(source: str, token: str) -> int:
    """The process that serves now."""
    with client.open(source, token) as reader:
        return int(reader.status()["pid"])


def test_the_store_goes_with_its_supervisor(tmp_path: Path):
    with Counting(speed=5) as producer:
        process, source, _ = collector(tmp_path, producer)
        pid = _pid(source, (tmp_path / "token").read_text().strip())
        process.kill()
        process.communicate()
        eventually(lambda: not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z", "it has gone")
    with client.open(str(tmp_path / "e.duckdb")) as reader:
        assert reader.sql("SELECT 1 AS one").num_rows == 1


def test_a_command_that_fails_is_not_started_again(tmp_path: Path):
    counter = tmp_path / "starts"
    code = f"from pathlib import Path; p = Path({str(counter)!r}); p.write_text(p.read_text() + 'x' if p.exists() else 'x')"
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    try:
        for status, starts in ((0, 1), (2, 1)):
            counter.unlink(missing_ok=True)
            assert supervise([sys.executable, "-c", f"{code}; import sys; sys.exit({status})"]) == status
            assert len(counter.read_text()) == starts
        counter.unlink()
        again = f"{code}; import sys; sys.exit({RESTART} if len(p.read_text()) < 3 else 0)"
        assert supervise([sys.executable, "-c", again]) == 0
        assert len(counter.read_text()) == 3
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)


def test_memory_beyond_bounds_is_a_reason_to_end(tmp_path: Path):
    store = Store(tmp_path / "e.duckdb")
    watchdog = Watchdog(store, 30.0)
    watchdog.close()
    assert watchdog.reason() == ""
    watchdog._max_rss = resident_bytes() // 2
    assert "MiB of memory in use" in watchdog.reason()
    store.close()
    watchdog._max_rss = 1 << 40
    assert watchdog.reason() == ""


def test_without_the_extensions_the_way_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("collector.extension._find", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'pbkv-console\[quack\]'"):
        Store(tmp_path / "e.duckdb", quack=Quack("127.0.0.1", free_port(), TOKEN))
    monkeypatch.undo()
    Store(tmp_path / "e.duckdb").close()
