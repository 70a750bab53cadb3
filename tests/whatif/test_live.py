"""The last minutes of a store as a recording: the newest calls, what was left out, and sources that have nothing."""

import pickle
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from collector.client import open as open_source
from collector.store import Store
from pbkv.errors import UsageError
from pbkv.whatif.forecast import fidelity
from pbkv.whatif.live import FromLog, measured
from tests.support.forecasts import Generated
from tests.support.played import played
from tests.support.stream import fill


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(tmp_path_factory.mktemp("live") / "played.duckdb")


def source(db: Path) -> FromLog:
    return FromLog(partial(open_source, str(db)))


def test_everything_when_it_is_little(db: Path) -> None:
    loaded = source(db)(86_400, 100_000)
    assert loaded.recording.calls == loaded.calls > 100 and loaded.left_out == 0 and not loaded.live
    assert loaded.span_s > 10 and "T" in loaded.ended and loaded.recording.measured["hit"] > 0


def test_the_newest_calls_when_there_are_too_many(db: Path) -> None:
    whole, newest = source(db)(86_400, 100_000), source(db)(86_400, 50)
    assert 45 <= newest.calls <= 55 and newest.left_out == whole.calls - newest.calls
    assert newest.recording.calls > newest.calls, "those before them warm the cache up"
    assert newest.ended == whole.ended and 0 < newest.span_s < whole.span_s
    assert fidelity(newest.recording).present.complete


def test_the_last_seconds(db: Path) -> None:
    whole, last = source(db)(86_400, 100_000), source(db)(60, 100_000)
    assert 0 < last.calls < whole.calls and last.left_out == 0 and last.span_s < whole.span_s


def test_it_goes_to_another_process(db: Path) -> None:
    again = pickle.loads(pickle.dumps(source(db)))
    assert again == source(db) or again(60, 100).calls == source(db)(60, 100).calls


def test_a_store_without_calls(tmp_path: Path) -> None:
    Store(tmp_path / "empty.duckdb").close()
    with pytest.raises(UsageError, match="has no calls"):
        source(tmp_path / "empty.duckdb")(600, 1000)


def test_of_two_servers_the_one_that_was_heard_last(db: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.duckdb"
    fill(path, seconds=2, server="first")
    fill(path, seconds=4, server="second", epoch=2)
    assert source(path)(600, 1000).recording.name == "second"


def test_the_reader_is_closed_also_after_a_refusal(db: Path) -> None:
    closed: list[str] = []

    @dataclass
    class Broken:
        live: bool = True

        def sql(self, query: str, params=None, *, deadline_s: float = 10.0):
            raise UsageError("no such table")

        def close(self) -> None:
            closed.append("yes")

    with pytest.raises(UsageError, match="no such table"):
        FromLog(Broken)(600, 10)
    assert closed == ["yes"]


def test_a_recording_without_times_has_no_span(db: Path) -> None:
    recording = Generated(workflows=2)(1, 1).recording
    assert measured(recording) == (recording.calls, 0.0)
