"""Kills under load, in small numbers; `python -m tests.benchmarks.bench_faults` does the same 200 and 20 times."""

from pathlib import Path

import duckdb
import pytest

from pbkv.events.wire import decode
from tests.support.faults import audit, kill_collector, kill_server, overrun
from tests.support.fuzz import fuzz
from tests.support.stream import fill, record


def test_the_collector_is_killed_at_random_moments(tmp_path: Path):
    books = kill_collector(tmp_path, times=8, seed=1)
    assert books.messages > 500


def test_the_collector_is_killed_while_events_leave_for_the_archive(tmp_path: Path):
    books = kill_collector(tmp_path, times=4, seed=2, archiving=True)
    assert books.segments > 0


def test_the_server_is_killed(tmp_path: Path):
    books = kill_server(tmp_path, times=3)
    assert (books.epochs, books.messages > 50) == (3, True)


def test_the_collector_is_away_for_longer_than_the_replay_buffer_reaches(tmp_path: Path):
    assert overrun(tmp_path).lost > 100


def test_mutated_messages_stop_nothing_and_are_counted(tmp_path: Path):
    fuzzed = fuzz(tmp_path, count=3000)
    assert fuzzed.refused > 1000
    assert fuzzed.refused + fuzzed.accepted == 3000


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("INSERT INTO raw.batch SELECT * FROM raw.batch WHERE seq = 7", "there 2 times"),
        ("DELETE FROM raw.batch WHERE seq = 7", "not complete|neither stored"),
        ("INSERT INTO raw.loss SELECT src, 7, 7, 1, 'x', t FROM raw.batch WHERE seq = 7", "stored and recorded as lost"),
        ("INSERT INTO raw.high_water SELECT 1, 10000, NULL, 0", "neither stored nor recorded"),
    ],
)
def test_the_audit_finds_what_is_wrong(tmp_path: Path, harm: str, words: str):
    path = tmp_path / "e.duckdb"
    fill(path, seconds=2, epoch=1)
    sent = {(1, m.header.seq): {k: len(t) for k, t in m.tables.items()} for m in (decode(p) for p in record(2, epoch=1))}
    assert audit(path, sent, 0.0).messages == len(sent)
    with duckdb.connect(str(path)) as db:
        db.execute(harm)
    with pytest.raises(AssertionError, match=words):
        audit(path, sent, 0.0)
