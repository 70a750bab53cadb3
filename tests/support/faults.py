"""Kills under load, and the books afterwards: every message stored once or recorded as lost, nothing twice, the file opens each time.

    kill_collector(folder, times=200)      kill -9 at random moments, the start included
    kill_server(folder, times=20)          the sender dies; what it had sent is there, what is missing is a loss row
    overrun(folder)                        the collector stays away for longer than the replay buffer reaches back
"""

import random
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import zmq

from collector.retention import Keeper, Retention
from collector.store import Store
from pbkv.events.schema import EVENT_KINDS
from pbkv.events.wire import FLAG_HEARTBEAT, FLAG_NAMES, TOPIC, decode
from tests.support.collector import CollectorProcess, eventually
from tests.support.stream import LiveProducer

#: (epoch, seq) -> records per kind of that message.
Seen = dict[tuple[int, int], dict[str, int]]


class Counting(LiveProducer):
    """A live producer that keeps, per message it has offered, how many records of each kind are in it."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.sent: Seen = {}
        offer = self.publisher.offer

        def count(seq: int, payload: bytes) -> bool:
            self.sent[self.writer.epoch, seq] = {kind: len(table) for kind, table in decode(payload).tables.items()}
            return offer(seq, payload)

        self.writer._sink.offer = count  # type: ignore[method-assign]


@dataclass(frozen=True)
class Books:
    """What a database holds against what was sent."""

    messages: int
    records: int
    lost: int
    epochs: int
    segments: int
    seconds: float


@contextmanager
def opened(db: Path, archive: Path | None) -> Generator[duckdb.DuckDBPyConnection]:
    """The file alone, or with its archive as a collector shows both."""
    if archive is None:
        with duckdb.connect(str(db), read_only=True) as connection:
            yield connection
        return
    store = Store(db, archive=archive)
    keeper = Keeper(store, Retention(archive=archive))
    with store.cursor() as connection:
        yield connection
    keeper.close()
    store.close()


def audit(db: Path, sent: Seen, seconds: float, archive: Path | None = None) -> Books:
    """Fails unless every message is stored completely and once, or is in a loss row, and nothing else is there."""
    with opened(db, archive) as connection:
        epochs = dict(connection.execute("SELECT src, epoch FROM raw.source").fetchall())
        lost = _lost(connection, epochs)
        stored: dict[tuple[int, int], dict[str, int]] = {}
        for kind in EVENT_KINDS:
            rows = connection.execute(f"SELECT src, seq, count(*), count(DISTINCT idx) FROM raw.{kind} GROUP BY src, seq").fetchall()
            for src, seq, count, distinct in rows:
                assert count == distinct, f"{kind} of message {seq} is there {count} times, {distinct} different"
                stored.setdefault((epochs[src], seq), {})[kind] = count
        marks = {epochs[src]: seq for src, seq in connection.execute("SELECT src, max(seq) FROM raw.high_water GROUP BY src").fetchall()}
    assert not stored.keys() & lost, "a message is stored and recorded as lost"
    for key, kinds in stored.items():
        if key in sent:
            assert kinds == {k: n for k, n in sent[key].items() if k != "name"}, f"message {key} is not complete"
    for epoch, mark in marks.items():
        for seq in range(1, mark + 1):
            # A message of names alone leaves no row in an event table.
            there = (epoch, seq) in stored or (epoch, seq) in lost or set(sent.get((epoch, seq), {"?": 1})) == {"name"}
            assert there, f"message {seq} of epoch {epoch} is neither stored nor recorded as lost"
    segments = len(list(archive.glob("segment-*"))) if archive else 0
    return Books(len(stored), sum(sum(k.values()) for k in stored.values()), len(lost), len(epochs), segments, seconds)


def _lost(connection: duckdb.DuckDBPyConnection, epochs: dict[int, int]) -> set[tuple[int, int]]:
    lost: set[tuple[int, int]] = set()
    for src, first, last in connection.execute("SELECT src, first_seq, last_seq FROM raw.loss").fetchall():
        part = {(epochs[src], seq) for seq in range(first, last + 1)}
        assert not part & lost, "a message is lost twice"
        lost |= part
    return lost


def kill_collector(folder: Path, times: int, seed: int = 0, *, archiving: bool = False) -> Books:
    """Every message must be there afterwards: the replay buffer holds all that is missed while no collector runs. `archiving`: events leave
    for an archive two seconds after each start, and the kills fall around that time."""
    start, rng, db = time.monotonic(), random.Random(seed), folder / "events.duckdb"
    archive = folder / "archive" if archiving else None
    earliest, latest = (2.0, 4.5) if archiving else (0.1, 2.5)
    with Counting(speed=15, seed=seed, replay_bytes=512 << 20) as producer:
        pair = f"{producer.endpoint},{producer.replay_endpoint}"
        command = [sys.executable, "-m", "collector", "--connect", pair, "--db", str(db), "--listen", "127.0.0.1:0"]
        command += ["--state-dir", str(folder), *(["--archive", str(archive), "--keep", "1s"] if archive else [])]
        for n in range(times):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(rng.uniform(earliest, latest))
            assert process.poll() is None, f"start {n} ended by itself: {process.communicate()[1]}"
            process.kill()
            assert process.communicate()[1] == ""
        _finish(producer, db)
        sent = producer.sent
    books = audit(db, sent, time.monotonic() - start, archive)
    assert books.lost == 0
    assert books.messages == sum(set(kinds) != {"name"} for kinds in sent.values())
    return books


def _finish(producer: Counting, db: Path) -> None:
    with CollectorProcess([(producer.endpoint, producer.replay_endpoint)], db) as collector:
        producer.stop()
        eventually(lambda: collector.stored(producer.writer.epoch) == producer.writer.seq, "everything is stored")
        code, status, err = collector.stop()
        assert (code, err, status["refused"]) == (0, "", 0)


def kill_server(folder: Path, times: int, seed: int = 0) -> Books:
    """A witness beside the collector sees what each server sent before it was killed."""
    start, rng, db = time.monotonic(), random.Random(seed), folder / "events.duckdb"
    events, replay = f"ipc://{folder}/e", f"ipc://{folder}/r"
    context = zmq.Context()
    witness = witness_of(context, events)
    sent: Seen = {}
    with CollectorProcess([(events, replay)], db) as collector:
        for n in range(times):
            command = [sys.executable, "-m", "tests.support.stream", "--events", events, "--replay", replay, "--speed", "10"]
            command += ["--seed", str(n)]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
            assert server.stdout
            server.stdout.readline()
            before = len(sent)
            end = time.monotonic() + rng.uniform(0.2, 1.5)
            while time.monotonic() < end or len(sent) == before:
                witness.drain(sent)
            server.kill()
            server.communicate()
            witness.drain(sent)
        collector.stop()
    witness.close()
    context.term()
    books = audit(db, sent, time.monotonic() - start)
    assert books.epochs == times
    return books


class Witness:
    """A subscriber beside the collector that keeps, per message, how many records of each kind are in it."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket

    def drain(self, sent: Seen) -> None:
        """Add what has come to `sent`; returns when nothing comes for a moment, or after many."""
        for _ in range(500):
            if not self._socket.poll(20):
                return
            message = decode(self._socket.recv_multipart()[1])
            if not message.header.flags & (FLAG_HEARTBEAT | FLAG_NAMES):
                sent[message.header.epoch, message.header.seq] = {kind: len(table) for kind, table in message.tables.items()}

    def close(self) -> None:
        """Leave."""
        self._socket.close()


def witness_of(context: "zmq.Context[zmq.Socket[bytes]]", events: str) -> Witness:
    """A witness of the stream published on `events`."""
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.subscribe(TOPIC)
    socket.connect(events)
    return Witness(socket)


def overrun(folder: Path, replay_bytes: int = 64 << 10) -> Books:
    """More is sent while no collector runs than the replay buffer holds: what it still has is stored, the rest is loss rows."""
    start, db = time.monotonic(), folder / "events.duckdb"
    with Counting(speed=20, seed=3, replay_bytes=replay_bytes) as producer:
        pairs = [(producer.endpoint, producer.replay_endpoint)]
        for _ in range(3):
            with CollectorProcess(pairs, db) as collector:
                mark = producer.writer.seq
                eventually(lambda c=collector, m=mark: c.stored(producer.writer.epoch) > m, "it has caught up")
                collector.kill()
            away = producer.writer.seq + 600
            eventually(lambda s=away: producer.writer.seq > s, "more is sent than the buffer holds")
        _finish(producer, db)
        sent = producer.sent
    books = audit(db, sent, time.monotonic() - start)
    assert books.lost > 0
    assert books.messages + books.lost >= sum(set(kinds) != {"name"} for kinds in sent.values())
    return books
