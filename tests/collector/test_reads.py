"""Reads: the live server and the file reader answer alike, refuse alike, and every failure is one sentence of the right class."""

import json
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from collector import client
from collector.flight import FlightReads
from collector.reader import Reader
from collector.store import Store
from collector.token import load_or_create, reader_token, state_dir
from pbkv.errors import PbkvError, Unreachable, UsageError
from pbkv.events.schema import SCHEMA_VERSION
from tests.collector.statements import ALLOWED, REFUSED
from tests.support.collector import eventually
from tests.support.stream import fill

TOKEN = "token-of-the-test"
RUNAWAY = "SELECT count(*) FROM range(10000000000) a, range(100000) b WHERE a.range <> b.range"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reads") / "events.duckdb"
    fill(path, seconds=31)
    return path


@pytest.fixture(scope="module")
def server(path: Path):
    copy = path.with_name("live.duckdb")
    copy.write_bytes(path.read_bytes())
    store = Store(copy, memory_limit="150MB")
    reads = FlightReads(store, "127.0.0.1", 0, TOKEN, lambda: {"rows": store.counts()}, max_rows=50_000, max_bytes=8 << 20, max_queries=3)
    yield reads
    reads.close()
    store.close()


@pytest.fixture
def live(server: FlightReads):
    with client.open(f"grpc://127.0.0.1:{server.port}", TOKEN) as reader:
        yield reader


@pytest.fixture
def recorded(path: Path):
    with client.open(str(path)) as reader:
        yield reader


@pytest.fixture(params=["live", "recorded"])
def reader(request: pytest.FixtureRequest) -> Reader:
    return request.getfixturevalue(request.param)


def test_a_query_with_parameters(reader: Reader):
    table = reader.sql("SELECT $a + 1 AS a, $b AS b, $c AS c, $d AS d", {"a": 1, "b": "x", "c": None, "d": [1, 2]})
    assert table.to_pylist() == [{"a": 2, "b": "x", "c": None, "d": [1, 2]}]


def test_views_and_types_are_the_same_on_both(live: Reader, recorded: Reader):
    for name in ("call", "knob", "eviction", "source"):
        a, b = live.sql(f"SELECT * FROM {name} ORDER BY ALL"), recorded.sql(f"SELECT * FROM {name} ORDER BY ALL")
        assert a.num_rows > 0
        assert [str(t) for t in a.schema.types] == [str(t) for t in b.schema.types]
        assert a.to_pylist() == b.to_pylist()


def test_an_empty_result_keeps_its_columns(reader: Reader):
    table = reader.sql("SELECT agent, ttft_ms FROM call WHERE false")
    assert (table.num_rows, table.column_names) == (0, ["agent", "ttft_ms"])


@pytest.mark.parametrize("sql", ALLOWED)
def test_allowed_statements_run(live: Reader, sql: str):
    live.sql(sql, deadline_s=30)


def test_refused_statements_reach_neither_the_store_nor_the_file(live: Reader, recorded: Reader):
    before = live.status()["rows"]
    for sql, reason in REFUSED:
        for reader in (live, recorded):
            with pytest.raises(UsageError) as caught:
                reader.sql(sql)
            assert reason in str(caught.value)
    assert live.status()["rows"] == before
    assert live.sql("SELECT 1 AS one").to_pylist() == [{"one": 1}]


@pytest.mark.parametrize(
    ("sql", "params", "words"),
    [
        ("SELECT * FROM cal", None, "Did you mean"),
        ("SELECT agnt FROM call", None, "agnt"),
        ("SELECT $a", None, "parameters: a"),
        ("SELECT 1", {"a": 1}, "excess parameters: a"),
        ("SELECT $a", {"a": "\ud800"}, "parameter"),
        ("SELECT 'x'::INT", None, "Could not convert"),
        ("SELECT (range || 'x')::INT FROM range(100000)", None, "Could not convert"),
        ("FROM 'other.duckdb'", None, "failed"),
        ("FROM nosuch.raw.call", None, "nosuch"),
    ],
)
def test_a_query_that_cannot_run_is_one_line_of_usage(reader: Reader, sql: str, params: dict[str, Any] | None, words: str):
    with pytest.raises(PbkvError) as caught:
        reader.sql(sql, params)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_deadline_ends_a_runaway_and_the_next_query_is_quick(reader: Reader):
    start = time.monotonic()
    with pytest.raises(PbkvError, match=r"longer than its 0\.\d+ s.*narrow the time range"):
        reader.sql(RUNAWAY, deadline_s=0.5)
    assert time.monotonic() - start < 10
    assert reader.sql("SELECT 1 AS one").num_rows == 1


@pytest.mark.parametrize("deadline_s", [0, -1.0, float("nan")])
def test_a_deadline_that_is_none(reader: Reader, deadline_s: float):
    with pytest.raises(UsageError, match="deadline_s"):
        reader.sql("SELECT 1", deadline_s=deadline_s)


def test_a_deadline_above_the_cap_is_capped(reader: Reader):
    assert reader.sql("SELECT 1 AS one", deadline_s=10_000).num_rows == 1


def test_too_many_rows_and_too_many_bytes(live: Reader, recorded: Reader):
    for reader, sql in (
        (live, "SELECT * FROM range(50001)"), (live, f"SELECT '{'x' * 1000}' || range FROM range(20000)"),
        (recorded, "SELECT * FROM range(200001)"),
    ):
        with pytest.raises(UsageError, match="narrow the time range, aggregate, or add a LIMIT"):
            reader.sql(sql)
    assert live.sql("SELECT * FROM range(50000)").num_rows == 50_000


def test_a_query_that_needs_too_much_memory_fails_alone(live: Reader):
    hog = "SELECT count(*) FROM (SELECT DISTINCT md5(range::VARCHAR) || 'and more than fits' FROM range(60000000))"
    with pytest.raises(PbkvError, match="more memory"):
        live.sql(hog, deadline_s=30)
    assert live.sql("SELECT 1 AS one").num_rows == 1


def test_a_client_that_leaves_frees_its_place(server: FlightReads, live: Reader):
    """Three places, six clients that give up after a moment: their queries are interrupted long before the deadline."""
    options = flight.FlightCallOptions(timeout=0.3, headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    ticket = flight.Ticket(json.dumps({"sql": RUNAWAY, "deadline_s": 30}))
    for _ in range(6):
        with flight.connect(f"grpc://127.0.0.1:{server.port}") as raw, pytest.raises((flight.FlightTimedOutError, flight.FlightError)):
            raw.do_get(ticket, options).read_all()
    start = time.monotonic()
    assert live.sql("SELECT 1 AS one", deadline_s=30).num_rows == 1
    assert time.monotonic() - start < 20


def test_a_killed_client_frees_its_place(server: FlightReads, live: Reader):
    code = f"from collector import client; client.open('grpc://127.0.0.1:{server.port}', {TOKEN!r}).sql({RUNAWAY!r}, deadline_s=30)"
    failed, queries = server.failed, server.queries
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    eventually(lambda: server.queries >= queries + 3, "three queries run")
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()
    eventually(lambda: server.failed >= failed + 3, "the queries were interrupted", 20)
    assert live.sql("SELECT 1 AS one").num_rows == 1


def test_more_queries_than_places_wait_their_turn(server: FlightReads):
    errors: list[Exception] = []

    def ask() -> None:
        try:
            with client.open(f"grpc://127.0.0.1:{server.port}", TOKEN) as reader:
                reader.sql("SELECT count(*) FROM range(3000000) a", deadline_s=30)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1]])
def test_a_wrong_token(server: FlightReads, token: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PBKV_COLLECTOR_TOKEN", token)
    with client.open(f"grpc://127.0.0.1:{server.port}") as reader:
        for call in (lambda: reader.sql("SELECT 1"), reader.status):
            with pytest.raises(UsageError, match="refuses the token"):
                call()


@pytest.mark.parametrize(
    "ticket",
    [b"", b"SELECT 1", b"[]", b"{}", b'{"sql": 1}', b'{"sql": "SELECT 1", "params": [1]}', b'{"sql": "SELECT 1", "deadline_s": true}',
     b'{"sql": "SELECT 1", "deadline_s": "1"}', b'{"sql": "SELECT 1", "deadline_s": NaN}', b"\xff\xfe", b"[" * 100_000, b"x" * 600_000],
    ids=lambda t: repr(t[:40]),
)
def test_a_malformed_ticket_is_refused(server: FlightReads, live: Reader, ticket: bytes):
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as raw, pytest.raises(flight.FlightServerError, match="ticket"):
        raw.do_get(flight.Ticket(ticket), options).read_all()
    assert live.sql("SELECT 1 AS one").num_rows == 1


def test_an_unknown_action_and_an_upload_are_refused(server: FlightReads):
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as raw:
        with pytest.raises(flight.FlightServerError, match="expected status"):
            list(raw.do_action(flight.Action("shutdown", b""), options))
        writer, _ = raw.do_put(flight.FlightDescriptor.for_path("raw.call"), pa.schema([]), options)
        with pytest.raises((flight.FlightError, pa.ArrowException, NotImplementedError)):
            writer.close()


def test_status(live: Reader, recorded: Reader):
    assert live.status()["rows"] == recorded.status()["rows"]
    status = recorded.status()
    assert (status["live"], status["schema_version"], status["gaps"], status["lost"]) == (False, SCHEMA_VERSION, 0, 0)
    assert status["sources"][0]["server"] == "synthetic-0"
    json.dumps(status)


def test_the_reader_says_what_it_is(live: Reader, recorded: Reader, path: Path, server: FlightReads):
    assert (live.live, live.source) == (True, f"grpc://127.0.0.1:{server.port}")
    assert (recorded.live, recorded.source) == (False, str(path))


def test_nobody_there(port: int):
    reader = client.open(f"grpc://127.0.0.1:{port}", TOKEN)
    start = time.monotonic()
    for call in (lambda: reader.sql("SELECT 1"), reader.status):
        with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port}: does not answer; start it with"):
            call()
    assert time.monotonic() - start < 10


def test_the_reader_recovers_when_the_collector_is_back(tmp_path: Path, port: int):
    reader = client.open(f"grpc://127.0.0.1:{port}", TOKEN)
    for _ in range(2):
        with pytest.raises(Unreachable):
            reader.sql("SELECT 1")
        store = Store(tmp_path / "events.duckdb")
        reads = FlightReads(store, "127.0.0.1", port, TOKEN, dict)
        start = time.monotonic()
        assert reader.sql("SELECT 1 AS one").num_rows == 1
        assert time.monotonic() - start < 5
        reads.close()
        store.close()
    reader.close()


def test_a_proxy_in_the_environment_is_not_used(server: FlightReads, monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with client.open(f"grpc://127.0.0.1:{server.port}", TOKEN) as reader:
        assert reader.sql("SELECT 1 AS one").num_rows == 1


def test_a_port_in_use_is_named(path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        store = Store(path.with_name("other.duckdb"))
        with pytest.raises(UsageError, match=rf"127\.0\.0\.1:{port}.*in use"):
            FlightReads(store, "127.0.0.1", port, TOKEN, dict)
        store.close()


def test_an_address_of_another_machine():
    with pytest.raises(UsageError, match=r"192\.0\.2\.1"):
        FlightReads(None, "192.0.2.1", 0, TOKEN, dict)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["grpc://", "grpc://host", "grpc://host:x", "grpc://host:0", "grpc://host:70000", "grpc://:5"])
def test_a_malformed_address(source: str):
    with pytest.raises(UsageError, match="expected grpc://HOST:PORT"):
        client.open(source)


def test_other_schemes_files_and_folders(tmp_path: Path):
    with pytest.raises(UsageError, match="expected grpc://"):
        client.open("http://127.0.0.1:1")
    with pytest.raises(UsageError, match="no such file"):
        client.open(str(tmp_path / "none.duckdb"))
    with pytest.raises(UsageError, match="a folder without archived segments"):
        client.open(str(tmp_path))
    (tmp_path / "text.duckdb").write_text("not a database" * 1000)
    with pytest.raises(UsageError, match="not a DuckDB file"):
        client.open(str(tmp_path / "text.duckdb"))


def test_a_file_that_a_collector_has_open_names_the_way(path: Path):
    code = (
        "from pathlib import Path; from collector.store import Store\n"
        f"s = Store(Path({str(path)!r})); print('up', flush=True); input(); s.close()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        with pytest.raises(UsageError, match=rf"in use by process {holder.pid}.*grpc://"):
            client.open(str(path))
    finally:
        holder.communicate("\n")
    with client.open(str(path)) as reader:
        assert reader.sql("SELECT 1 AS one").num_rows == 1


def test_the_file_reader_does_not_change_the_file(path: Path):
    before = path.read_bytes()
    with client.open(str(path)) as reader:
        reader.sql("SELECT count(*) FROM call")
    assert path.read_bytes() == before


def test_several_readers_of_one_file(path: Path):
    with client.open(str(path)) as a, client.open(str(path)) as b:
        assert a.sql("SELECT count(*) AS n FROM call").to_pylist() == b.sql("SELECT count(*) AS n FROM call").to_pylist()


def test_no_thread_outlives_a_reader(path: Path):
    before = set(threading.enumerate())
    with client.open(str(path)) as reader:
        reader.sql("SELECT 1")
    assert set(threading.enumerate()) == before


def test_the_token_file_is_private_and_stays_the_same(tmp_path: Path):
    folder = tmp_path / "deep" / "state"
    token = load_or_create(folder)
    assert len(token) >= 32
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert load_or_create(folder) == token


def test_where_tokens_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PBKV_STATE_DIR", str(tmp_path / "s"))
    assert state_dir() == tmp_path / "s"
    assert state_dir(tmp_path) == tmp_path
    assert reader_token(None) == ""
    token = load_or_create(state_dir())
    assert reader_token(None) == token
    monkeypatch.setenv("PBKV_COLLECTOR_TOKEN", "from-env")
    assert reader_token(None) == "from-env"
    assert reader_token("given") == "given"
    monkeypatch.delenv("PBKV_STATE_DIR")
    assert state_dir() == Path.home() / ".local" / "state" / "pbkv"


def test_a_state_folder_that_cannot_be_used(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="PBKV_STATE_DIR"):
        load_or_create(tmp_path / "file" / "state")
    (tmp_path / "token").write_text("\n")
    with pytest.raises(UsageError, match="is empty"):
        load_or_create(tmp_path)


@pytest.mark.parametrize("token", ["é", "a\nb", "\x7f"])
def test_a_token_that_cannot_be_one_is_refused_at_once(token: str):
    with pytest.raises(UsageError, match="token"):
        client.open("grpc://127.0.0.1:1", token)
