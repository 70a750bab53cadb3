"""The fleet's store: the same questions and answers as a file, several collectors at once, and a catalog server that dies."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector import client
from collector.ingest import Ingest
from collector.lake import Lake, LakeStore, check_source, compact, stream_number
from collector.options import Options
from collector.pipe import Pipe
from collector.retention import Retention
from collector.roller import Roller
from collector.service import Collector
from collector.store import Store
from collector.stream import Key, Loss, key_of
from collector.views.overview import load_overview
from pbkv.errors import PbkvError, UsageError
from pbkv.events.schema import EVENT_KINDS
from pbkv.events.wire import Message, decode
from tests.support.collector import eventually
from tests.support.postgres import Postgres
from tests.support.stream import LiveProducer, record


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    return [decode(p) for p in record(40, seed=6, epoch=1)]


@pytest.fixture(scope="module")
def other() -> list[Message]:
    return [decode(p) for p in record(12, seed=7, server="synthetic-1", epoch=2)]


def test_a_lake_answers_like_a_file(postgres: Postgres, tmp_path: Path, messages, other):
    source = postgres.new()
    lake, file = LakeStore(source, tmp_path / "data"), Store(tmp_path / "e.duckdb")
    for store in (lake, file):
        store.commit([*messages[:900], Loss(key_of(messages[0].header), 901, 905, "not held"), *messages[905:]])
        store.commit(other)
        assert store.high_water() == {Key("synthetic-0", 1, 0): len(messages), Key("synthetic-1", 2, 0): len(other)}
        Roller(store).roll(store.stored(), minutes=True)
        store.close()
    with client.open(source) as a, client.open(str(tmp_path / "e.duckdb")) as b:
        for window in (60.0, 7200.0):
            for server in ("synthetic-0", "synthetic-1"):
                one, two = load_overview(a, window, server), load_overview(b, window, server)
                assert {**vars(one), "source": ""} == {**vars(two), "source": ""}
        for name in (*EVENT_KINDS, "loss", "source"):
            columns = "* EXCLUDE t" if name == "loss" else "*"
            sql = f"SELECT {columns} FROM {name} ORDER BY ALL"
            assert a.sql(sql).to_pylist() == b.sql(sql).to_pylist(), name
        assert a.status()["rows"] == b.status()["rows"]
        assert (a.status()["lost"], a.live) == (5, False)
        with pytest.raises(UsageError, match="not a SELECT"):
            a.sql("DELETE FROM store.raw.call")


def test_a_collector_continues_where_it_was(postgres: Postgres, tmp_path: Path, messages):
    source = postgres.new()
    for start in (0, 500):
        store = LakeStore(source, tmp_path / "data" if start == 0 else None)
        assert store.high_water() == ({key_of(messages[0].header): 500} if start else {})
        assert store.stored() == {}
        store.commit(messages[:1000] if start else messages[:500])
        assert list(store.stored().values()) == [1000 if start else 500]
        Roller(store).roll(store.stored(), minutes=True)
        store.close()
    with client.open(source) as reader:
        got = reader.sql("SELECT count(*) AS n, count(DISTINCT seq) AS d, max(seq) AS m FROM batch").to_pylist()
        rolled = reader.sql("SELECT sum(steps)::INT AS n FROM raw.roll_batch_1m").to_pylist()
    assert got == [{"n": 1000, "d": 1000, "m": 1000}]
    assert rolled == [{"n": 1000}]


def test_collectors_that_start_together_make_one_lake(postgres: Postgres, tmp_path: Path):
    """Attaching makes DuckLake's own tables, and there the first may win: a collector that fails then is started again."""
    source = postgres.new()
    failures: list[str] = []
    go = threading.Barrier(3)

    def start() -> None:
        go.wait()
        for _ in range(5):
            try:
                LakeStore(source, tmp_path / "data").close()
                return
            except PbkvError as error:
                failures.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with client.open(source) as reader:
        assert reader.sql("SELECT count(*) AS n FROM meta").to_pylist() == [{"n": 1}]
    assert all("cannot be opened" in text for text in failures)


def test_several_collectors_at_once_and_compaction(postgres: Postgres, tmp_path: Path):
    source = postgres.new()
    LakeStore(source, tmp_path / "data").close()
    failures: list[Exception] = []

    def write(number: int) -> None:
        try:
            store = LakeStore(source, None)
            mine = [decode(p) for p in record(10, seed=number, server=f"gpu{number}", epoch=number)]
            for start in range(0, len(mine), 100):
                store.commit(mine[start : start + 100])
            Roller(store).roll(store.stored(), minutes=True)
            store.close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    sql = "SELECT server, count(*) AS n, count(DISTINCT (seq, idx)) AS d FROM batch GROUP BY server ORDER BY server"
    expected = [{"server": f"gpu{n}", "n": 500, "d": 500} for n in (1, 2, 3)]
    with client.open(source) as reader:
        assert reader.sql(sql).to_pylist() == expected
        assert load_overview(reader, 60.0, "gpu2").server.name == "gpu2"
    lake = Lake(source, data=None, read_only=False)
    files = len(list((tmp_path / "data").rglob("*.parquet")))
    compact(lake.connection, keep_minutes=0)
    lake.close()
    assert len(list((tmp_path / "data").rglob("*.parquet"))) < files
    with client.open(source) as reader:
        assert reader.sql(sql).to_pylist() == expected


def test_a_catalog_that_dies_loses_and_doubles_nothing(postgres: Postgres, tmp_path: Path, messages, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("collector.ingest._FIRST_PAUSE_S", 0.01)
    source = postgres.new()
    store = LakeStore(source, tmp_path / "data")
    pipe, stop = Pipe(), threading.Event()
    worker = Ingest(pipe, store)
    store.batch_bytes, store.commit_s = 20_000, 0.0  # type: ignore[misc]
    worker.thread.start()
    pipe.put(messages[:300], stop)
    eventually(lambda: worker.commits > 2, "commits")
    postgres.stop()
    pipe.put(messages[300:600], stop)
    eventually(lambda: worker.failures > 2, "failures")
    postgres.start()
    eventually(lambda: not worker.failing, "it goes on")
    pipe.put(messages[600:900], stop)
    pipe.close()
    worker.thread.join(60)
    assert worker.complete
    store.close()
    with client.open(source) as reader:
        got = reader.sql("SELECT count(*) AS n, count(DISTINCT seq) AS d FROM batch").to_pylist()
    assert got == [{"n": 900, "d": 900}]


def test_what_was_committed_without_an_answer_is_not_stored_again(postgres: Postgres, tmp_path: Path, messages, other):
    source = postgres.new()
    store = LakeStore(source, tmp_path / "data")
    store.commit([*messages[:100], *other[:50]])
    store.reopen()
    batch = store.commit([*messages[:150], *other[:50], Loss(key_of(messages[0].header), 10, 20, "not held")])
    assert batch.rows["batch"] == 50
    store.close()
    with client.open(source) as reader:
        assert reader.sql("SELECT count(*) AS n FROM batch").to_pylist() == [{"n": 200}]
        assert reader.sql("SELECT count(*) AS n FROM loss").to_pylist() == [{"n": 0}]


def test_a_collector_into_a_lake_serves_reads(postgres: Postgres, tmp_path: Path):
    source = postgres.new()
    options = Options(Retention(keep_bytes=None), lake=source, lake_data=tmp_path / "data")
    with LiveProducer(speed=10) as producer:
        collector = Collector([(producer.endpoint, producer.replay_endpoint)], Path(), "127.0.0.1:0", tmp_path, options)
        try:
            eventually(lambda: collector.ingest.commits, "a commit")
            with client.open(collector.source, collector.token_file.read_text().strip()) as reader:
                assert reader.sql("SELECT count(*) > 0 AS some FROM batch").to_pylist() == [{"some": True}]
                assert reader.status()["db"] == source
                assert load_overview(reader).status in ("live", "stale")
        finally:
            producer.stop()
            collector.close()
    with client.open(source) as reader:
        assert reader.sql("SELECT sum(steps)::INT AS n FROM raw.roll_batch_1s").to_pylist() == reader.sql(
            "SELECT count(*)::INT AS n FROM raw.batch"
        ).to_pylist()


@pytest.mark.parametrize("source", ["postgres:", "postgres:lake", "mysql:host=x", "postgres:host=x password=secret", "postgres:PASSWORD=x"])
def test_a_source_that_can_be_none(source: str):
    with pytest.raises(UsageError, match="lake: ") as caught:
        check_source(source)
    assert "secret" not in str(caught.value)


def test_a_catalog_that_is_not_there(tmp_path: Path):
    for open_it in (client.open, lambda s: LakeStore(s, tmp_path / "data")):
        with pytest.raises(PbkvError, match="cannot be opened") as caught:
            open_it("postgres:host=127.0.0.1 port=1 dbname=x")
        assert "\n" not in str(caught.value)


def test_a_database_without_a_lake(postgres: Postgres):
    with pytest.raises(PbkvError, match="cannot be opened"):
        client.open(postgres.new())


def test_stream_numbers_are_those_of_every_collector_and_fit():
    numbers = {stream_number(Key(f"s{n}", n % 7, n % 3)) for n in range(10_000)}
    assert len(numbers) == 10_000
    assert all(0 <= n < 2**63 for n in numbers)
    assert stream_number(Key("gpu0", 1, 0)) == stream_number(Key("gpu0", 1, 0)) != stream_number(Key("gpu0", 1, 1))


def test_without_the_extensions_the_way_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("collector.extension._find", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'pbkv-console\[lake\]'"):
        client.open("postgres:host=127.0.0.1 dbname=x")
