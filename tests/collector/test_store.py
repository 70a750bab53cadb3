"""The store: what is committed, that nothing is committed twice or in part, and how opening fails."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from collector.batch import build
from collector.store import Store
from collector.stream import Key, Loss, key_of
from pbkv.errors import PbkvError, UsageError
from pbkv.events.schema import BY_NAME, SCHEMA_VERSION, Namespace
from pbkv.events.wire import FLAG_NAMES, Header, Message, decode, encode
from tests.support.stream import fill, record

KEY = Key("synthetic-0", 5, 0)


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    return [decode(p) for p in record(31, seed=3, epoch=5)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.duckdb"


def rows(path: Path, sql: str) -> list[tuple]:
    with duckdb.connect(str(path), read_only=True) as db:
        return db.execute(sql).fetchall()


def names_message(*names: tuple[int, str]) -> Message:
    kind = BY_NAME["name"]
    data = b"".join(kind.struct.pack(n, i, Namespace.AGENT, text.encode()) for n, (i, text) in enumerate(names))
    header = Header("synthetic-0", 5, 0, 0, 0, 0, 0, 0, len(names), FLAG_NAMES)
    return decode(encode(header, [(kind, len(names), data)]))


def test_every_value_arrives_as_it_was_sent(path: Path, messages: list[Message]):
    store = Store(path)
    store.commit(messages)
    store.close()
    for kind in BY_NAME.values():
        sent = [
            (m.header.seq, r["idx"], m.header.step, *(r[f.name] for f in kind.fields))
            for m in messages if kind.name in m.tables for r in m.tables[kind.name]
        ]
        columns = ", ".join(f"e.{f.name}" for f in kind.fields)
        got = rows(path, f"SELECT seq, idx, sched_step, {columns} FROM raw.{kind.name} e ORDER BY seq, idx")
        assert sent
        assert [[_plain(v) for v in row] for row in got] == [[_plain(v) for v in row] for row in sent]


def _plain(value: Any) -> object:
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else float(value)


def test_times_are_utc_of_the_servers_wall_clock(path: Path, messages: list[Message]):
    store = Store(path)
    store.commit(messages)
    store.close()
    assert rows(path, "SELECT min(t)::VARCHAR FROM batch") == [("2026-01-01 12:00:00.02",)]
    assert rows(path, "SELECT first_t::VARCHAR FROM source") == [("2026-01-01 12:00:00.02",)]


def test_one_high_water_row_per_stream_and_transaction(path: Path, messages: list[Message]):
    store = Store(path)
    other = [decode(p) for p in record(2, epoch=6)]
    store.commit([*messages[:10], *other[:5]])
    store.commit(messages[10:20])
    assert store.high_water() == {KEY: 20, key_of(other[0].header): 5}
    store.close()
    assert rows(path, "SELECT src, seq FROM raw.high_water ORDER BY ALL") == [(1, 10), (1, 20), (2, 5)]


def test_a_loss_is_a_row_and_moves_the_high_water(path: Path, messages: list[Message]):
    store = Store(path)
    store.commit([*messages[:3], Loss(KEY, 4, 9, "not held"), messages[9]])
    assert store.high_water() == {KEY: 10}
    store.commit([Loss(KEY, 11, 2**63, "not held")])
    store.close()
    got = rows(path, "SELECT server, first_seq, last_seq, messages, cause FROM loss ORDER BY first_seq")
    assert got == [("synthetic-0", 4, 9, 6, "not held"), ("synthetic-0", 11, 2**63, 2**63 - 10, "not held")]


def test_a_stream_that_begins_with_a_loss_has_a_source(path: Path):
    store = Store(path)
    store.commit([Loss(KEY, 1, 9, "not held")])
    store.close()
    assert rows(path, "SELECT server, epoch, rank FROM source") == [tuple(KEY)]


def test_names_are_stored_once_however_often_they_come(path: Path):
    store = Store(path)
    store.commit([names_message((1, "planner"), (2, "coder")), names_message((1, "planner"))])
    store.commit([names_message((2, "coder"), (3, "écrivain"))])
    store.close()
    store = Store(path)
    store.commit([names_message((1, "planner"), (3, "écrivain"), (4, "x"))])
    assert store.high_water() == {KEY: 0}
    store.close()
    assert rows(path, "SELECT id, text FROM raw.name ORDER BY id") == [(1, "planner"), (2, "coder"), (3, "écrivain"), (4, "x")]


def test_a_name_that_is_not_utf8_is_kept_readable(path: Path):
    kind = BY_NAME["name"]
    data = kind.struct.pack(0, 1, 2, b"\xff\xfeabc")
    message = decode(encode(Header("synthetic-0", 5, 0, 1, 0, 0, 0, 0, 1), [(kind, 1, data)]))
    store = Store(path)
    store.commit([message])
    store.close()
    assert rows(path, "SELECT text FROM raw.name") == [("��abc",)]


def test_extreme_headers_are_stored(path: Path):
    kind = BY_NAME["page"]
    for n, wall in enumerate((-(2**63), 2**63 - 1)):
        header = Header("é" * 16, 2**64 - 1, 65535, 2**64 - 2 + n, 2**64 - 1, 0, wall, 0, 1)
        store = Store(path)
        store.commit([decode(encode(header, [(kind, 1, kind.struct.pack(0, 2**64 - 1, 0, 0))]))])
        store.close()
    assert rows(path, "SELECT count(*), max(seq) FROM page") == [(2, 2**64 - 1)]


def test_messages_that_are_stored_already_are_left_out(path: Path, messages: list[Message]):
    """After a transaction whose end was not heard the whole batch comes again."""
    store = Store(path)
    store.commit(messages[:20])
    batch = store.commit([Loss(KEY, 3, 9, "not held"), *messages[10:25]])
    assert batch.rows["batch"] == 5
    assert store.high_water() == {KEY: 25}
    assert store.counts()["batch"] == 25
    store.close()
    assert rows(path, "SELECT count(*) FROM loss") == [(0,)]


def test_reopening_continues_the_same_sources(path: Path, messages: list[Message]):
    for part in (messages[:5], messages[5:10]):
        store = Store(path)
        store.commit(part)
        store.close()
    assert rows(path, "SELECT count(*) FROM raw.source") == [(1,)]
    assert rows(path, "SELECT count(*), count(DISTINCT (src, seq, idx)) FROM raw.batch") == [(10, 10)]


def test_an_empty_commit_stores_nothing(path: Path):
    store = Store(path)
    store.commit([])
    assert set(store.counts().values()) == {0}
    store.close()


def test_a_failed_commit_leaves_nothing_behind_and_can_be_repeated(path: Path, messages: list[Message], monkeypatch: pytest.MonkeyPatch):
    store = Store(path)
    store.commit(messages[:5])
    with store.cursor() as cursor:
        cursor.execute("ALTER TABLE store.raw.occupancy RENAME TO hidden")
        with pytest.raises(PbkvError, match="write failed"):
            store.commit(messages[5:30])
        cursor.execute("ALTER TABLE store.raw.hidden RENAME TO occupancy")
    assert store.high_water() == {KEY: 5}
    assert store.counts()["batch"] == 5
    store.commit(messages[5:30])
    assert store.high_water() == {KEY: 30}
    assert store.counts()["batch"] == 30
    store.close()


def test_a_failed_commit_forgets_the_sources_and_names_it_brought(path: Path):
    store = Store(path)
    with store.cursor() as cursor:
        cursor.execute("ALTER TABLE store.raw.name RENAME TO hidden")
        with pytest.raises(PbkvError):
            store.commit([names_message((1, "planner"))])
        cursor.execute("ALTER TABLE store.raw.hidden RENAME TO name")
    store.commit([names_message((1, "planner"))])
    store.close()
    assert rows(path, "SELECT text FROM raw.name") == [("planner",)]
    assert rows(path, "SELECT count(*) FROM source") == [(1,)]


def test_close_leaves_no_write_ahead_log(path: Path, messages: list[Message]):
    store = Store(path)
    store.commit(messages)
    store.close()
    assert [p.name for p in path.parent.glob("events*")] == ["events.duckdb"]


def test_nothing_can_be_loaded_attached_read_or_configured(path: Path):
    store = Store(path)
    with store.cursor() as cursor:
        for sql in ("INSTALL httpfs", "ATTACH 'x.duckdb' AS x", "FROM read_text('/etc/hostname')", "SET threads = 1", "RESET memory_limit"):
            with pytest.raises(duckdb.Error):
                cursor.execute(sql)
    store.close()


def test_not_a_duckdb_file(path: Path):
    path.write_bytes(b"hello" * 1000)
    with pytest.raises(UsageError, match="not a DuckDB file"):
        Store(path)
    assert path.read_bytes() == b"hello" * 1000


def test_a_torn_duckdb_file(path: Path):
    fill(path, seconds=1)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(UsageError, match=r"events\.duckdb"):
        Store(path)


@pytest.mark.parametrize("name", ["raw.duckdb", "RAW.duckdb", "raw.x.duckdb"])
def test_a_file_named_like_the_schema(tmp_path: Path, name: str):
    with pytest.raises(UsageError, match="name it otherwise"):
        Store(tmp_path / name)
    assert list(tmp_path.glob("*.duckdb")) == []


@pytest.mark.parametrize("name", ["main", "temp", "system", "call", "meta", "select", "a b", "é", "x'y"])
def test_other_names_are_fine(tmp_path: Path, name: str, messages: list[Message]):
    store = Store(tmp_path / f"{name}.duckdb")
    store.commit(messages[:3])
    assert store.counts()["batch"] == 3
    store.close()


def test_a_folder_and_a_missing_folder(tmp_path: Path):
    for bad in (tmp_path, tmp_path / "no" / "x.duckdb"):
        with pytest.raises(UsageError, match="cannot be opened"):
            Store(bad)


def test_a_duckdb_file_of_something_else(path: Path):
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE customers(i INT)")
    with pytest.raises(UsageError, match="not an event store"):
        Store(path)
    assert rows(path, "SELECT table_name FROM duckdb_tables()") == [("customers",)]


def test_a_newer_schema(path: Path):
    fill(path, seconds=1)
    with duckdb.connect(str(path)) as db:
        db.execute("UPDATE meta SET schema_version = schema_version + 1")
    with pytest.raises(UsageError, match=f"event schema {SCHEMA_VERSION + 1}, .* is newer"):
        Store(path)


def test_a_locked_file(path: Path):
    fill(path, seconds=1)
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import duckdb; c = duckdb.connect({str(path)!r}); print('up', flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        with pytest.raises(UsageError, match=rf"in use by process {holder.pid}.*grpc://"):
            Store(path)
    finally:
        holder.communicate("\n")


def test_build_without_anything():
    batch = build([], lambda key: 1, lambda src, name: False, 0)
    assert (batch.tables, batch.rows, batch.done) == ({}, {}, {})


def test_reopen_keeps_everything(path: Path, messages: list[Message]):
    store = Store(path)
    store.commit(messages[:10])
    store.reopen()
    assert store.high_water() == {KEY: 10}
    store.commit(messages[10:12])
    assert store.counts()["batch"] == 12
    store.close()
