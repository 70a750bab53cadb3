"""The bounded queue and the committing thread: order, bounds, retries, and that nothing behind a hole is ever stored."""

import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import ingest
from collector.ingest import Ingest
from collector.pipe import Pipe, item_bytes
from collector.store import Store
from collector.stream import Key, Loss, key_of
from collector.subscriber import Subscriber
from pbkv.errors import PbkvError
from pbkv.events.wire import Message, decode
from tests.support.stream import record

KEY = Key("s", 1, 0)


def loss(n: int) -> Loss:
    return Loss(KEY, n, n, "x")


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    return [decode(p) for p in record(5, epoch=1)]


@given(st.lists(st.integers(0, 6), max_size=40), st.integers(1, 2000))
def test_items_come_out_in_order_whatever_the_batches(sizes, max_bytes):
    pipe, stop = Pipe(), threading.Event()
    n, expected, got = 0, [], []
    for size in sizes:
        part = [loss(n + i) for i in range(size)]
        n += size
        expected += part
        assert pipe.put(part, stop)
        if size % 2:
            got += pipe.take(max_bytes, 0)
    pipe.close()
    while taken := pipe.take(max_bytes, 0):
        got += taken
    assert got == expected
    assert pipe.depth == (0, 0)


def test_a_full_pipe_makes_put_wait_until_there_is_room():
    pipe, stop = Pipe(max_bytes=300), threading.Event()
    pipe.put([loss(n) for n in range(3)], stop)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (pipe.put([loss(3)], stop), done.set()))
    thread.start()
    assert not done.wait(0.2)
    assert pipe.take(1, 0) == [loss(0)]
    assert done.wait(10)
    thread.join()
    assert pipe.depth[0] == 3


def test_a_full_pipe_refuses_when_stopping():
    pipe, stop = Pipe(max_bytes=1), threading.Event()
    assert pipe.put([loss(0)], stop)
    stop.set()
    assert not pipe.put([loss(1)], stop)
    assert pipe.take(1000, 0) == [loss(0)]


def test_take_lingers_for_more_and_returns_early_when_there_is_enough():
    pipe, stop = Pipe(), threading.Event()
    pipe.put([loss(0)], stop)
    threading.Timer(0.05, lambda: pipe.put([loss(1), loss(2)], stop)).start()
    start = time.monotonic()
    assert len(pipe.take(3 * item_bytes(loss(0)), 30)) == 3
    assert time.monotonic() - start < 20


def test_take_ends_only_after_close():
    pipe = Pipe()
    got: list[list] = []
    thread = threading.Thread(target=lambda: got.append(pipe.take(10, 10)))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    pipe.close()
    thread.join(10)
    assert got == [[]]


def test_the_size_of_a_message_counts_its_records(messages: list[Message]):
    assert item_bytes(messages[0]) > sum(t.nbytes for t in messages[0].tables.values())


def run_ingest(store: Store, items: list, *, stopping: bool = False) -> Ingest:
    pipe = Pipe()
    pipe.put(items, threading.Event())
    pipe.close()
    worker = Ingest(pipe, store)
    if stopping:
        worker.stopping.set()
    worker.thread.start()
    worker.thread.join(60)
    assert not worker.thread.is_alive()
    return worker


def test_ingest_stores_counts_and_times(tmp_path: Path, messages: list[Message]):
    store = Store(tmp_path / "e.duckdb")
    worker = run_ingest(store, messages)
    key = key_of(messages[0].header)
    assert worker.rows["batch"] == len(messages)
    assert (worker.commits, len(worker.commit_ms), worker.failures, worker.left) == (1, 1, 0, 0)
    assert worker.stored[key][0] == len(messages)
    store.close()


class Failing:
    """A store whose first `times` commits fail."""

    batch_bytes, commit_s = Store.batch_bytes, Store.commit_s

    def __init__(self, store: Store, times: int) -> None:
        self.store, self.times, self.reopened = store, times, 0

    def commit(self, items: list) -> object:
        self.times -= 1
        if self.times >= 0:
            raise PbkvError("no room")
        return self.store.commit(items)

    def reopen(self) -> None:
        self.reopened += 1
        if self.reopened == 1:
            raise PbkvError("still no room")


def test_a_failed_commit_is_repeated_until_it_is_in(tmp_path: Path, messages: list[Message], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ingest, "_FIRST_PAUSE_S", 0.001)
    store = Store(tmp_path / "e.duckdb")
    failing = Failing(store, 5)
    worker = run_ingest(failing, messages)  # type: ignore[arg-type]
    assert (worker.failures, failing.reopened, worker.failing, worker.last_error) == (6, 6, "", "no room")
    assert store.high_water() == {key_of(messages[0].header): len(messages)}
    store.close()


def test_stopping_gives_up_after_a_few_attempts_and_says_what_is_left(tmp_path: Path, messages: list[Message]):
    store = Store(tmp_path / "e.duckdb")
    worker = run_ingest(Failing(store, 1000), messages, stopping=True)  # type: ignore[arg-type]
    assert (worker.left, worker.commits) == (len(messages), 0)
    assert store.high_water() == {}
    store.close()


def test_after_a_refused_put_nothing_behind_it_is_put(tmp_path: Path, messages: list[Message]):
    """Else the high-water mark would pass over what was refused, and it would be lost without a trace."""
    pipe = Pipe(max_bytes=1)
    subscriber = Subscriber([(f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r")], {}, pipe)
    try:
        subscriber._store(list(messages[:1]))
        subscriber.stop.set()
        subscriber._store(list(messages[1:2]))
        assert pipe.take(1, 0) == messages[:1]
        subscriber._store(list(messages[2:3]))
        assert pipe.depth == (0, 0)
    finally:
        subscriber._close()
