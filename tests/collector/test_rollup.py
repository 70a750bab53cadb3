"""Rollups say the same as the events they were made from, however the messages were cut into runs."""

import math
import threading
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector import client
from collector.roller import Roller, rolled, unrolled
from collector.rollup import ROLLUPS, WIDTHS, bin_sql, unbin_sql
from collector.store import Store
from collector.views.sql.accuracy import ACCURACY
from pbkv.events.schema import BY_NAME
from pbkv.events.wire import Header, Message, decode, encode
from tests.support.stream import record

#: Sums of a rollup that the events give directly: rollup -> (its columns, the same over events).
SUMS = {
    "call": ("sum(calls), sum(prompt_tokens), sum(e2e_ms)", "count(*), sum(prompt_tokens), sum(e2e_ms::DOUBLE) FROM raw.call"),
    "eviction": ("sum(nodes), sum(tokens), sum(reuse)", "count(*), sum(tokens), sum(reuse) FROM raw.eviction"),
    "prefetch": ("sum(rows), sum(tokens), sum(bytes)", "count(*), sum(tokens), sum(bytes) FROM raw.prefetch"),
    "window": ("sum(windows), sum(length_us), sum(h2d_bytes)", "count(*), sum(length_us::DOUBLE), sum(h2d_bytes) FROM raw.pcie_window"),
    "occupancy": ("max(at_seq), max_by(device_free, at_seq)", "max(seq), max_by(device_free, seq) FROM raw.occupancy"),
    "batch": ("sum(steps), sum(requests), sum(duration_us)", "count(*), sum(requests), sum(duration_us::DOUBLE) FROM raw.batch"),
}


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    return [decode(p) for p in record(70, seed=4, epoch=1)]


@pytest.fixture(scope="module")
def other() -> list[Message]:
    return [decode(p) for p in record(9, seed=5, epoch=2)]


def together(store: Store) -> None:
    with store.cursor() as db:
        for rollup in ROLLUPS:
            if rollup.name in SUMS:
                mine, theirs = SUMS[rollup.name]
                expected = [v or 0 for v in db.execute(f"SELECT {theirs}").fetchone()]
                for suffix in WIDTHS:
                    got = db.execute(f"SELECT {mine} FROM raw.{rollup.table(suffix)}").fetchone()
                    assert [v or 0 for v in got] == pytest.approx(expected), (rollup.name, suffix)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.tuples(st.integers(1, 3500), st.booleans()), max_size=6))
def test_any_runs_give_the_same_sums(tmp_path_factory, messages, other, cuts):
    store = Store(tmp_path_factory.mktemp("roll") / "e.duckdb")
    store.commit([*messages, *other])
    high = store.stored()
    roller = Roller(store)
    for upto, minutes in sorted(cuts):
        roller.roll({src: min(upto, seq) for src, seq in high.items()}, minutes=minutes)
    assert roller.roll(high, minutes=True) >= 0
    assert roller.roll(high, minutes=True) == 0
    together(store)
    scores(store)
    store.close()


def scores(store: Store) -> None:
    """The accuracy of each stream from the rollup, and from the question over events."""
    with store.cursor() as db:
        for src in (1, 2):
            params = {"src": src, "past": 0, "seq0": 0, "t0": 0, "t1": 2**52}
            expected = [(h, n, c, round(e * n)) for h, n, c, e in db.execute(ACCURACY.sql, params).fetchall()]
            assert expected
            for suffix in WIDTHS:
                rows = f"raw.roll_accuracy_{suffix} WHERE src = {src}"
                got = db.execute(f"SELECT horizon, sum(scored), sum(correct), sum(ends) FROM {rows} GROUP BY 1 ORDER BY 1").fetchall()
                assert got == expected


def test_a_row_is_one_second_or_one_minute(tmp_path: Path, messages: list[Message]):
    store = Store(tmp_path / "e.duckdb")
    store.commit(messages)
    Roller(store).roll(store.stored(), minutes=True)
    with store.cursor() as db:
        for suffix, width in WIDTHS.items():
            got = db.execute(f"SELECT t, sum(steps)::INT FROM raw.roll_batch_{suffix} GROUP BY t ORDER BY t").fetchall()
            raw = f"SELECT time_bucket(INTERVAL {width} SECOND, t), count(*) FROM raw.batch GROUP BY 1 ORDER BY 1"
            assert got == db.execute(raw).fetchall()
    store.close()


def test_what_is_rolled_is_remembered(tmp_path: Path, messages: list[Message]):
    path = tmp_path / "e.duckdb"
    for part in (messages[:1000], messages[1000:]):
        store = Store(path)
        store.commit(part)
        roller = Roller(store)
        roller.roll(store.stored(), minutes=True)
        assert roller.done() == store.stored()
        with store.cursor() as db:
            assert rolled(db) == {1: store.stored(), 60: store.stored()}
            assert unrolled(db) is None
        together(store)
        store.close()


def test_a_failed_run_adds_nothing_and_is_repeated(tmp_path: Path, messages: list[Message], monkeypatch: pytest.MonkeyPatch):
    store = Store(tmp_path / "e.duckdb")
    store.commit(messages)
    roller = Roller(store)
    with store.cursor() as db:
        db.execute("ALTER TABLE store.raw.roll_accuracy_1s RENAME TO hidden")
        with pytest.raises(duckdb.Error):
            roller.roll(store.stored(), minutes=True)
        assert db.execute("SELECT count(*) FROM store.raw.roll_call_1s").fetchone() == (0,)
        db.execute("ALTER TABLE store.raw.hidden RENAME TO roll_accuracy_1s")
    roller.roll(store.stored(), minutes=True)
    together(store)
    store.close()


def test_a_file_whose_rollups_lag_is_read_as_if_they_did_not(tmp_path: Path, messages: list[Message], other: list[Message]):
    path = tmp_path / "e.duckdb"
    store = Store(path)
    store.commit([*messages, *other])
    Roller(store).roll({1: 1500}, minutes=True)
    Roller(store).roll({1: 2000}, minutes=False)
    store.close()
    with client.open(str(path)) as reader:
        for suffix in WIDTHS:
            got = reader.sql(f"SELECT src, sum(steps)::INT AS n FROM raw.roll_batch_{suffix} GROUP BY src ORDER BY src").to_pylist()
            assert got == [{"src": 1, "n": len(messages)}, {"src": 2, "n": len(other)}]


def test_rolling_beside_commits(tmp_path: Path, messages: list[Message]):
    store = Store(tmp_path / "e.duckdb")
    done = threading.Event()

    def commit() -> None:
        for n in range(0, len(messages), 250):
            store.commit(messages[n : n + 250])
        done.set()

    thread = threading.Thread(target=commit)
    roller = Roller(store)
    thread.start()
    while not done.is_set():
        roller.roll(store.stored(), minutes=True)
    thread.join()
    roller.roll(store.stored(), minutes=True)
    together(store)
    store.close()


def test_absurd_records_do_not_stop_the_rollups(tmp_path: Path):
    """A sender may write anything into a field; the next rollups must still be made."""
    store = Store(tmp_path / "e.duckdb")
    extremes = {"u8": 0, "u16": 2**16 - 1, "u32": 2**32 - 1, "u64": 2**64 - 1, "i64": -(2**63)}
    sections, first = [], 0
    for name in ("call", "eviction", "prefetch", "pcie_window", "occupancy", "batch", "workflow", "prediction"):
        kind = BY_NAME[name]
        data = b""
        for value in (math.inf, -math.inf, math.nan, -1.0, 3.4e38):
            data += kind.struct.pack(first, *(extremes.get(f.dtype, value) for f in kind.fields))
            first += 1
        sections.append((kind, 5, data))
    for seq in (1, 2):
        store.commit([decode(encode(Header("s", 1, 0, seq, 0, 0, (2**63 - 1) * (1 if seq == 1 else -1), 0, first), sections))])
    roller = Roller(store)
    roller.roll(store.stored(), minutes=True)
    with store.cursor() as db:
        assert db.execute("SELECT sum(calls)::INT FROM raw.roll_call_1m").fetchone() == (10,)
    store.close()


@given(st.floats(0.01, 1e6))
def test_a_bin_is_within_five_percent(value):
    (found,) = duckdb.execute(f"SELECT {unbin_sql(bin_sql('$value'))}", {"value": value}).fetchone()
    assert found == pytest.approx(value, rel=0.045)


@pytest.mark.parametrize("value", ["0", "-1", "'nan'::DOUBLE", "'inf'::DOUBLE", "'-inf'::DOUBLE", "1e-30", "1e300", "NULL::DOUBLE"])
def test_any_value_has_a_bin(value: str):
    (found,) = duckdb.execute(f"SELECT {bin_sql(value)}").fetchone()
    assert found is None or 0 <= found <= 255
