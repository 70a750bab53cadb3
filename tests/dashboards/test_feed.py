"""The thread that reads the source for all pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collector import client
from collector.reader import Reader
from collector.views.models import Overview
from collector.views.overview import load_overview
from dashboards import feed as feed_module
from dashboards.feed import Feed, Snapshot
from pbkv.errors import PbkvError, Unreachable
from tests.dashboards.factory import full
from tests.dashboards.waiting import wait_for
from tests.support.stream import fill


class Source:
    """A reader whose availability the test decides; what it reads is made by `Loads`."""

    source, live = "test", True

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Loads:
    """Stands where load_overview does: counts, fails on demand, returns a new overview each time."""

    def __init__(self) -> None:
        self.windows: list[float] = []
        self.error: Exception | None = None

    def __call__(self, reader: Reader, window_s: float) -> Overview:
        self.windows.append(window_s)
        if self.error is not None:
            raise self.error
        return full(window_s=window_s)


@contextmanager
def running(feed: Feed) -> Iterator[Feed]:
    feed.start()
    try:
        yield feed
    finally:
        feed.stop()


def fresh(feed: Feed, window: float, after: int = 0) -> Snapshot:
    wait_for(lambda: (s := feed.want(window)) is not None and s.n > after)
    snapshot = feed.want(window)
    assert snapshot is not None
    return snapshot


def test_reads_only_what_pages_want():
    loads = Loads()
    with running(Feed(Source, loads, interval_s=0.02)) as feed:
        assert feed.idle
        assert feed.want(60) is None
        assert fresh(feed, 60).overview is not None
        fresh(feed, 300)
        assert set(loads.windows) == {60, 300}
        assert not feed.idle


def test_a_window_nobody_wants_is_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feed_module, "FORGET_S", 0.1)
    loads = Loads()
    with running(Feed(Source, loads, interval_s=0.02)) as feed:
        fresh(feed, 60)
        wait_for(lambda: feed.idle)
        assert feed.any() is None
        assert feed.want(60) is None


def test_keeps_the_last_overview_while_the_source_is_away_and_recovers():
    loads = Loads()
    with running(Feed(Source, loads, interval_s=0.02)) as feed:
        good = fresh(feed, 60)
        loads.error = Unreachable("gone")
        wait_for(lambda: (s := feed.want(60)) is not None and s.error == "gone")
        failing = feed.want(60)
        assert failing is not None
        assert failing.overview is not None
        assert failing.unreachable
        wait_for(lambda: (s := feed.want(60)) is not None and s.failing_s > 0.05)
        loads.error = None
        wait_for(lambda: (s := feed.want(60)) is not None and s.error is None)
        assert fresh(feed, 60).n > good.n
        assert fresh(feed, 60).failing_s == 0


def test_a_source_that_cannot_be_opened_yet_is_tried_again():
    tries: list[int] = []

    def opener() -> Reader:
        tries.append(1)
        if len(tries) < 3:
            raise Unreachable("not yet")
        return Source()  # type: ignore[return-value]

    with running(Feed(opener, Loads(), interval_s=0.02)) as feed:
        wait_for(lambda: (s := feed.want(60)) is not None and s.error is None)
        assert len(tries) == 3


def test_an_unexpected_error_is_shown_and_the_reader_replaced():
    loads, opened = Loads(), []

    def opener() -> Reader:
        opened.append(Source())
        return opened[-1]

    with running(Feed(opener, loads, interval_s=0.02)) as feed:
        fresh(feed, 60)
        loads.error = ZeroDivisionError("by zero")
        wait_for(lambda: (s := feed.want(60)) is not None and s.error is not None)
        snapshot = feed.want(60)
        assert snapshot is not None
        assert snapshot.error == "ZeroDivisionError: by zero"
        assert not snapshot.unreachable
        loads.error = None
        wait_for(lambda: (s := feed.want(60)) is not None and s.error is None)
        assert opened[0].closed
        assert len(opened) >= 2
    assert opened[-1].closed


def test_a_refused_query_keeps_the_reader():
    loads, opened = Loads(), []

    def opener() -> Reader:
        opened.append(Source())
        return opened[-1]

    with running(Feed(opener, loads, interval_s=0.02)) as feed:
        loads.error = PbkvError("deadline")
        wait_for(lambda: (s := feed.want(60)) is not None and s.error == "deadline")
        loads.error = None
        wait_for(lambda: (s := feed.want(60)) is not None and s.overview is not None)
    assert len(opened) == 1


def test_a_recording_is_read_once_per_window(tmp_path: Path):
    path = tmp_path / "a.duckdb"
    fill(path, 20, 1)
    counted: list[float] = []

    def load(reader: Reader, window_s: float) -> Overview:
        counted.append(window_s)
        return load_overview(reader, window_s)

    with running(Feed(lambda: client.open(str(path)), load, interval_s=0.02)) as feed:
        first = fresh(feed, 60)
        assert first.overview is not None
        assert first.overview.status == "recorded"
        fresh(feed, 300)
        other = feed.read_now(900)
        assert other is not None
        assert counted == [60, 300, 900]
        assert feed.want(60) is first


def test_read_now_gives_up_in_time():
    feed = Feed(Source, Loads())  # never started
    assert feed.read_now(60, timeout_s=0.05) is None


def test_stop_before_start_is_harmless():
    Feed(Source, Loads()).stop()
