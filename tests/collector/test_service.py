"""The whole collector as a process: nothing lost or doubled through kills, restarts, full disks and hostile senders."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest
import zmq

from collector import client
from collector.service import Collector, parse_listen, parse_pair, run_collector
from pbkv.errors import PbkvError, Unreachable, UsageError
from pbkv.events.schema import BY_NAME, EVENT_KINDS
from pbkv.events.wire import TOPIC, Header, decode, encode
from pbkv.events.writer import EventWriter
from tests.support.collector import CollectorProcess, eventually
from tests.support.stream import LiveProducer, fill


class Counting(LiveProducer):
    """A live producer that also counts, per kind, the records of every message it has offered."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.produced: dict[str, int] = dict.fromkeys(BY_NAME, 0)
        offer = self.publisher.offer

        def count(seq: int, payload: bytes) -> bool:
            for kind, table in decode(payload).tables.items():
                self.produced[kind] += len(table)
            return offer(seq, payload)

        self.writer._sink.offer = count  # type: ignore[method-assign]


def assert_stored_exactly_once(db: Path, producer: Counting) -> None:
    """Rows == unique positions == produced, for every kind."""
    with duckdb.connect(str(db), read_only=True) as connection:
        src = connection.execute("SELECT src FROM raw.source WHERE epoch = ?", [producer.writer.epoch]).fetchone()
        assert src
        for kind in EVENT_KINDS:
            got = connection.execute(
                f"SELECT count(*), count(DISTINCT (seq, idx)) FROM raw.{kind} WHERE src = ?", [src[0]]
            ).fetchone()
            assert got == (producer.produced[kind], producer.produced[kind]), kind
        assert connection.execute("SELECT count(*), count(DISTINCT id) FROM raw.name WHERE src = ?", [src[0]]).fetchone() == (
            producer.produced["name"], producer.produced["name"],
        )
        assert connection.execute("SELECT count(*) FROM loss").fetchone() == (0,)


def wait_stored(collector: CollectorProcess, producer: LiveProducer) -> None:
    eventually(lambda: collector.stored(producer.writer.epoch) == producer.writer.seq, f"all {producer.writer.seq} messages stored")


def following(producer: LiveProducer, folder: Path) -> CollectorProcess:
    return CollectorProcess([(producer.endpoint, producer.replay_endpoint)], folder / "events.duckdb")


def test_kill_9_again_and_again_stores_every_message_once(tmp_path: Path):
    db = tmp_path / "events.duckdb"
    with Counting(speed=15, seed=1) as producer:
        pairs = [(producer.endpoint, producer.replay_endpoint)]
        stored = 0
        for _ in range(4):
            with CollectorProcess(pairs, db) as collector:
                eventually(lambda c=collector, n=stored: c.stored(producer.writer.epoch) > n + 50, "some messages stored")
                stored = collector.stored(producer.writer.epoch)
                collector.kill()
        with CollectorProcess(pairs, db) as collector:
            producer.stop()
            wait_stored(collector, producer)
            code, status, err = collector.stop()
    assert (code, err) == (0, "")
    assert (status["lost"], status["refused"]) == (0, 0)
    assert_stored_exactly_once(db, producer)
    assert not Path(f"{db}.wal").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_commits_and_leaves_a_database_that_opens(tmp_path: Path, number: int):
    db = tmp_path / "events.duckdb"
    with Counting(speed=10) as producer, CollectorProcess([(producer.endpoint, producer.replay_endpoint)], db) as collector:
        eventually(lambda: collector.stored(producer.writer.epoch) > 20, "some messages stored")
        code, status, err = collector.stop(number)
        assert (code, err) == (0, "")
        assert not Path(f"{db}.wal").exists()
        with client.open(str(db)) as reader:
            seq = reader.sql("SELECT max(seq) AS n FROM raw.high_water").to_pylist()[0]["n"]
            assert seq == status["sources"][0]["seq"]
            assert reader.sql("SELECT max(seq) AS n FROM batch").to_pylist()[0]["n"] == seq


def test_names_are_known_to_a_collector_that_comes_late_and_lost_the_beginning(tmp_path: Path):
    """The replay buffer is too small to hold the beginning: it is a loss, and the names come all the same."""
    with LiveProducer(speed=None, seconds=60, replay_bytes=60_000) as producer:
        producer.finished.wait()
        db = tmp_path / "events.duckdb"
        with CollectorProcess([(producer.endpoint, producer.replay_endpoint)], db) as collector:
            wait_stored(collector, producer)
            with collector.reader() as reader:
                lost = reader.sql("SELECT first_seq, last_seq, messages, cause FROM loss").to_pylist()
                assert [(r["first_seq"], r["cause"]) for r in lost] == [(1, "not held")]
                assert lost[0]["messages"] == lost[0]["last_seq"]
                first = reader.sql("SELECT min(seq) AS n FROM batch").to_pylist()[0]["n"]
                assert first == lost[0]["last_seq"] + 1
                eventually(
                    lambda: reader.sql("SELECT count(*) AS n FROM prediction WHERE agent[1] = '#'").to_pylist() == [{"n": 0}],
                    "every agent has its name",
                )
                assert reader.sql("SELECT engine, model FROM source").to_pylist() == [{"engine": "synthetic", "model": "synthetic-8b"}]
                status = reader.status()
            assert status["lost"] == lost[0]["messages"]
            assert status["gaps"] == 0


def test_a_collector_that_starts_before_the_server_waits_for_it(tmp_path: Path):
    events, replay = f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r"
    with CollectorProcess([(events, replay)], tmp_path / "events.duckdb") as collector:
        with collector.reader() as reader:
            assert reader.sql("SELECT count(*) AS n FROM call").to_pylist() == [{"n": 0}]
            assert reader.status()["sources"] == []
        with Counting(events=events, replay=replay, speed=20, seconds=10) as producer:
            producer.finished.wait()
            wait_stored(collector, producer)
        collector.stop()
    assert_stored_exactly_once(collector.db, producer)


def test_a_restarted_server_is_another_epoch(tmp_path: Path):
    events, replay = f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r"
    with CollectorProcess([(events, replay)], tmp_path / "events.duckdb") as collector:
        producers = []
        for epoch in (100, 101):
            with Counting(events=events, replay=replay, speed=20, seconds=6, seed=epoch, epoch=epoch) as producer:
                producer.finished.wait()
                wait_stored(collector, producer)
                producers.append(producer)
        with collector.reader() as reader:
            assert {s["epoch"] for s in reader.status()["sources"]} == {100, 101}
            assert reader.sql("SELECT DISTINCT epoch FROM call ORDER BY 1").to_pylist() == [{"epoch": 100}, {"epoch": 101}]
        collector.stop()
    for producer in producers:
        assert_stored_exactly_once(collector.db, producer)


def test_two_servers_into_one_store(tmp_path: Path):
    with Counting(server="a", epoch=1, seed=1, speed=20, seconds=8) as a, Counting(server="b", epoch=2, seed=2, speed=20, seconds=8) as b:
        pairs = [(p.endpoint, p.replay_endpoint) for p in (a, b)]
        with CollectorProcess(pairs, tmp_path / "events.duckdb") as collector:
            for producer in (a, b):
                producer.finished.wait()
                wait_stored(collector, producer)
            with collector.reader() as reader:
                servers = reader.sql("SELECT DISTINCT server FROM call ORDER BY 1").to_pylist()
                assert servers == [{"server": "a"}, {"server": "b"}]
            collector.stop()
    for producer in (a, b):
        assert_stored_exactly_once(collector.db, producer)


def test_a_suspended_collector_costs_the_producer_nothing_and_catches_up(tmp_path: Path):
    with Counting(speed=40, workflows_per_s=3) as producer, following(producer, tmp_path) as collector:
        eventually(lambda: collector.stored(producer.writer.epoch) > 20, "some messages stored")
        collector.process.send_signal(signal.SIGSTOP)
        before = producer.writer.seq
        eventually(lambda: producer.writer.seq > before + 3000, "the producer goes on")
        producer.stop()
        assert producer.writer.dropped == 0
        collector.process.send_signal(signal.SIGCONT)
        wait_stored(collector, producer)
        collector.stop()
    assert_stored_exactly_once(collector.db, producer)


def test_a_full_disk_is_shown_and_nothing_is_lost_once_there_is_room(tmp_path: Path):
    """RLIMIT_FSIZE makes every write beyond the limit fail, as a full disk does; raising it is the room coming back."""
    db = tmp_path / "events.duckdb"
    fill(db, seconds=2, epoch=1)
    limit = db.stat().st_size + 300_000
    with Counting(speed=60, seed=4) as producer:
        pairs = [(producer.endpoint, producer.replay_endpoint)]
        with CollectorProcess(pairs, db, prefix=["prlimit", f"--fsize={limit}:unlimited"]) as collector, collector.reader() as reader:
            status = eventually(lambda: (s := reader.status())["failing"] and s, "the failure is shown")
            assert "write failed" in status["failing"]
            eventually(lambda: reader.status()["queue"]["messages"] > 50, "messages wait")
            resource.prlimit(collector.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            eventually(lambda: not reader.status()["failing"], "it writes again")
            producer.stop()
            wait_stored(collector, producer)
            assert reader.status()["last_error"], "what happened can still be read"
            code, _, _ = collector.stop()
            assert code == 0
    assert_stored_exactly_once(db, producer)


def test_stopping_while_the_disk_is_full_says_so_and_the_next_start_repairs_it(tmp_path: Path):
    db = tmp_path / "events.duckdb"
    fill(db, seconds=2, epoch=1)
    with Counting(speed=60, seed=5) as producer:
        pairs = [(producer.endpoint, producer.replay_endpoint)]
        with CollectorProcess(pairs, db) as collector:
            eventually(lambda: collector.stored(producer.writer.epoch) > 20, "messages are stored")
            # From now on no write to a file succeeds, whatever DuckDB frees meanwhile.
            subprocess.run(["prlimit", "--pid", str(collector.process.pid), "--fsize=1:unlimited"], check=True)
            with collector.reader() as reader:
                eventually(lambda: reader.status()["failing"], "the failure is shown")
            code, _, err = collector.stop()
            assert code == 1
            assert "asked for again at the next start" in err
            assert "Traceback" not in err
        producer.stop()
        with CollectorProcess(pairs, db) as collector:
            wait_stored(collector, producer)
            collector.stop()
    assert_stored_exactly_once(db, producer)


def test_hostile_and_foreign_messages_are_counted_and_the_stream_goes_on(tmp_path: Path):
    events, replay = f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r"
    context = zmq.Context()
    hostile = context.socket(zmq.PUB)
    hostile.bind(f"ipc://{tmp_path}/h")
    with Counting(events=events, replay=replay, speed=10) as producer:
        pairs = [(events, replay), (f"ipc://{tmp_path}/h", f"ipc://{tmp_path}/hr")]
        with CollectorProcess(pairs, tmp_path / "events.duckdb") as collector, collector.reader() as reader:
            good = encode(Header("evil", 1, 0, 1, 0, 0, 0, 0, 0), [])
            bad = [b"", b"x", good[:-1], good + b"x", b"\0" * 200, good[:20] + b"\xff" * 8 + good[28:], os.urandom(5000)]

            def refused() -> bool:
                for payload in bad:
                    hostile.send_multipart([TOPIC, payload])
                hostile.send_multipart([TOPIC, good, b"extra"])
                hostile.send_multipart([TOPIC])
                return reader.status()["refused"] >= 50

            eventually(refused, "hostile messages counted")
            assert reader.status()["last_refusal"]
            producer.stop()
            wait_stored(collector, producer)
            assert reader.status()["failing"] == ""
            collector.stop()
    hostile.close()
    context.term()
    with duckdb.connect(str(collector.db), read_only=True) as db:
        assert db.execute("SELECT count(*) FROM batch WHERE server = 'evil'").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM batch").fetchone() == (producer.produced["batch"],)


def test_a_query_during_ingest_sees_whole_messages(tmp_path: Path):
    with LiveProducer(speed=20) as producer, following(producer, tmp_path) as collector:
        eventually(lambda: collector.stored(producer.writer.epoch) > 20, "some messages stored")
        with collector.reader() as reader:
            for _ in range(10):
                row = reader.sql(
                    "SELECT (SELECT max(seq) FROM raw.batch) AS b, (SELECT max(seq) FROM raw.high_water) AS h, count(*) AS n FROM raw.batch"
                ).to_pylist()[0]
                assert row["b"] == row["h"] == row["n"]


def test_a_client_that_stalls_does_not_keep_the_collector_from_stopping(tmp_path: Path):
    db = tmp_path / "events.duckdb"
    fill(db, seconds=1)
    code = (
        "import sys, json\nfrom pyarrow import flight\n"
        "source, token = sys.argv[1:]\n"
        "o = flight.FlightCallOptions(headers=[(b'authorization', f'Bearer {token}'.encode())])\n"
        "sql = f\"SELECT '{'x' * 300}' || range AS x FROM range(150000)\"\n"
        "r = flight.connect(source).do_get(flight.Ticket(json.dumps({'sql': sql})), o)\n"
        "r.read_chunk(); print('reading', flush=True); input()\n"
    )
    with CollectorProcess([(f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r")], db) as collector:
        stalled = subprocess.Popen(
            [sys.executable, "-c", code, collector.source, collector.token], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert stalled.stdout is not None
        assert stalled.stdout.readline() == "reading\n"
        start = time.monotonic()
        exit_code, _, _ = collector.stop()
        assert exit_code == 0
        assert time.monotonic() - start < 20
        stalled.kill()
        stalled.communicate()
    assert not Path(f"{db}.wal").exists()


def test_readers_see_the_collector_go(tmp_path: Path):
    with CollectorProcess([(f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r")], tmp_path / "e.duckdb") as collector:
        reader = collector.reader()
        reader.sql("SELECT 1")
        collector.kill()
        with pytest.raises(Unreachable, match="pbkv collect"):
            reader.sql("SELECT 1")
        reader.close()


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "collector", *args], capture_output=True, text=True, timeout=60)


PAIR = "tcp://127.0.0.1:5991,tcp://127.0.0.1:5992"


def test_bad_input_is_one_sentence_and_exit_2(tmp_path: Path):
    db = tmp_path / "events.duckdb"
    text = tmp_path / "text.duckdb"
    text.write_text("hello" * 1000)
    newer = tmp_path / "newer.duckdb"
    fill(newer, seconds=1)
    with duckdb.connect(str(newer)) as connection:
        connection.execute("UPDATE meta SET schema_version = 99")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        cases = [
            (["--connect", PAIR, "--db", str(text)], "not a DuckDB file"),
            (["--connect", PAIR, "--db", str(newer)], "event schema 99"),
            (["--connect", PAIR, "--db", str(tmp_path / "no" / "x.duckdb")], "cannot be opened"),
            (["--connect", PAIR, "--db", str(db), "--listen", f"127.0.0.1:{busy}"], f"127.0.0.1:{busy}: cannot be bound"),
            (["--connect", PAIR, "--db", str(db), "--listen", "nowhere"], "expected HOST:PORT"),
            (["--connect", "tcp://127.0.0.1:1", "--db", str(db)], "expected EVENTS,REPLAY"),
            (["--connect", "nonsense,nonsense", "--db", str(db), "--listen", "127.0.0.1:0"], "endpoint 'nonsense'"),
            (["--connect", PAIR, "--connect", PAIR, "--db", str(db)], "named twice"),
        ]
        for args, words in cases:
            done = run(*args)
            assert done.returncode == 2, args
            assert words in done.stderr
            assert done.stderr.count("\n") == 1, done.stderr
            assert done.stdout == ""


def test_a_second_collector_on_the_same_file_names_the_first(tmp_path: Path):
    db = tmp_path / "events.duckdb"
    with CollectorProcess([(f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r")], db) as collector:
        done = run("--connect", PAIR, "--db", str(db), "--listen", "127.0.0.1:0")
        assert done.returncode == 2
        assert f"in use by process {collector.process.pid}" in done.stderr


def test_in_process_nothing_is_left_behind(tmp_path: Path):
    before = set(threading.enumerate())
    stop, ready = threading.Event(), []

    def on_ready(info: dict) -> None:
        ready.append(info)
        stop.set()

    status = run_collector([(f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r")], tmp_path / "e.duckdb", "127.0.0.1:0", tmp_path, on_ready, stop)
    assert ready[0]["source"].startswith("grpc://127.0.0.1:")
    assert Path(ready[0]["token_file"]).exists()
    assert status["live"]
    json.dumps(status)
    assert set(threading.enumerate()) == before
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["e.duckdb", "token"]


def test_a_failed_start_leaves_no_lock_and_no_thread(tmp_path: Path):
    before = set(threading.enumerate())
    db = tmp_path / "e.duckdb"
    for connect in ([], [("nonsense", "nonsense")]):
        with pytest.raises(UsageError, match="endpoint"):
            Collector(connect, db, "127.0.0.1:0", tmp_path)
    assert set(threading.enumerate()) == before
    collector = Collector([(f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r")], db, "127.0.0.1:0", tmp_path)
    collector.close()


def test_a_dead_thread_ends_the_service_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("collector.subscriber.Subscriber._turn", lambda self, wait_ms: 1 / 0)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    with pytest.raises(PbkvError, match="stopped by itself"):
        run_collector([(f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r")], tmp_path / "e.duckdb", "127.0.0.1:0", tmp_path)


def test_addresses():
    assert parse_listen("grpc://127.0.0.1:5615") == ("127.0.0.1", 5615)
    assert parse_listen("[::1]:0") == ("[::1]", 0)
    assert parse_pair("a,b") == ("a", "b")
    for bad in ("", "host", "host:x", "host:99999", ":1"):
        with pytest.raises(UsageError, match="HOST:PORT"):
            parse_listen(bad)
    for bad in ("", "a", "a,", ",b", "a,b,c"):
        with pytest.raises(UsageError, match="EVENTS,REPLAY"):
            parse_pair(bad)


def test_an_event_writer_without_events_sends_nothing(tmp_path: Path):
    class Sink:
        def offer(self, seq: int, payload: bytes) -> bool:
            raise AssertionError("nothing to send")

    EventWriter("s", Sink()).flush(1)
