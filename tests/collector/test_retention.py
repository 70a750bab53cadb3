"""Events leave for the archive or for good; every query gives the same answer before, during and after."""

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from collector import client
from collector.archive import Archive
from collector.retention import Keeper, Retention, used_bytes
from collector.roller import Roller
from collector.store import Store
from collector.stream import Loss, key_of
from collector.views.overview import load_overview
from pbkv.errors import PbkvError, UsageError
from pbkv.events.schema import EVENT_KINDS
from pbkv.events.wire import FLAG_NAMES, Message, decode
from tests.support.stream import record

#: Far enough in the future that everything is too old.
LATER = time.time() + 10_000


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    return [decode(p) for p in record(40, seed=6, epoch=1)]


@pytest.fixture(scope="module")
def other() -> list[Message]:
    return [decode(p) for p in record(12, seed=7, server="synthetic-1", epoch=2)]


class Kept:
    """A store with an archive whose limits are applied by hand."""

    def __init__(self, folder: Path, **limits) -> None:
        self.path, self.folder = folder / "events.duckdb", folder / "archive"
        self.limits = Retention(**{"archive": self.folder, "keep_s": 100.0, **limits})
        self.open()

    def open(self) -> None:
        self.store = Store(self.path, archive=self.limits.archive)
        self.keeper = Keeper(self.store, self.limits, settle_s=0)
        self.roller = Roller(self.store)

    def turn(self, now: float = LATER) -> bool:
        self.roller.roll(self.store.stored(), minutes=True)
        return self.keeper.turn(self.roller.done(), now)

    def rows(self, sql: str) -> list[tuple]:
        with self.store.cursor() as db:
            return db.execute(sql).fetchall()

    def close(self) -> None:
        self.keeper.close()
        self.store.close()

    def crash(self) -> None:
        """Close without what a collector does at its end; file locks go with the process."""
        self.keeper.close()
        self.store.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path)
    yield kept
    kept.close()


def everything(kept: Kept) -> dict[str, list[tuple]]:
    return {name: kept.rows(f"SELECT * FROM {name} ORDER BY ALL") for name in (*EVENT_KINDS, "loss", "source", "raw.name")}


def in_tables(kept: Kept) -> int:
    return sum(kept.rows(f"SELECT count(*) FROM store.raw.{kind}")[0][0] for kind in EVENT_KINDS)


def test_what_left_the_database_is_still_there_for_queries(kept: Kept, messages, other):
    kept.store.commit([*messages[:900], Loss(key_of(messages[0].header), 901, 905, "not held"), *messages[905:], *other])
    before = everything(kept)
    assert kept.turn()
    assert in_tables(kept) == 0
    assert everything(kept) == before
    assert (kept.keeper.segments, kept.keeper.events_out) == (1, sum(len(before[k]) for k in EVENT_KINDS))
    assert not kept.turn()


def test_only_what_is_old_enough_leaves(kept: Kept, messages):
    kept.store.commit(messages[:500])
    with kept.store.cursor() as db:
        db.execute("UPDATE store.raw.high_water SET t = t - INTERVAL 1000 SECOND")
    kept.store.commit(messages[500:])
    before = everything(kept)
    assert kept.turn(time.time())
    assert kept.rows("SELECT min(seq), max(seq) FROM store.raw.batch") == [(501, len(messages))]
    assert kept.rows("SELECT src, seq, segment FROM store.raw.cut") == [(1, 500, 1)]
    assert everything(kept) == before


def test_several_segments_and_a_restart_between_them(tmp_path: Path, messages, other):
    kept = Kept(tmp_path)
    for part in (messages[:300], messages[300:700], [*messages[700:], *other[:100]], other[100:]):
        kept.store.commit(part)
        kept.turn()
        kept.close()
        kept.open()
    assert [s.id for s in kept.keeper.archive.segments] == [1, 2, 3, 4]
    fresh = Store(tmp_path / "fresh.duckdb")
    fresh.commit([*messages, *other])
    for kind in EVENT_KINDS:
        with fresh.cursor() as db:
            assert kept.rows(f"SELECT * FROM {kind} ORDER BY ALL") == db.execute(f"SELECT * FROM {kind} ORDER BY ALL").fetchall()
    fresh.close()
    kept.close()


def test_the_folder_alone_answers_the_same_questions(tmp_path: Path, messages, other):
    kept = Kept(tmp_path)
    plain = tmp_path / "plain.duckdb"
    for part in (messages[:1100], messages[1100:], other):
        kept.store.commit(part)
        kept.turn()
    kept.close()
    store = Store(plain)
    store.commit([*messages, *other])
    store.close()
    with client.open(str(kept.folder)) as archived, client.open(str(plain)) as file:
        for window in (5.0, 60.0, 7200.0):
            for server in ("synthetic-0", "synthetic-1"):
                a, b = load_overview(archived, window, server), load_overview(file, window, server)
                assert {**vars(a), "source": ""} == {**vars(b), "source": ""}
        for name in (*EVENT_KINDS, "source"):
            sql = f"SELECT * FROM {name} ORDER BY ALL"
            assert archived.sql(sql).to_pylist() == file.sql(sql).to_pylist()
        assert archived.status()["rows"] == {**file.status()["rows"]}
        assert (archived.status()["segments"], archived.live) == (3, False)


def test_rollups_of_all_segments_are_those_of_all_events(tmp_path: Path, messages):
    kept = Kept(tmp_path)
    for part in (messages[:777], messages[777:]):
        kept.store.commit(part)
        kept.turn()
    sql = "SELECT horizon, sum(scored)::INT AS n, sum(correct)::INT AS c FROM raw.roll_accuracy_1m GROUP BY 1 ORDER BY 1"
    steps = "SELECT mode, sum(steps)::INT AS n FROM raw.roll_batch_1s GROUP BY 1 ORDER BY 1"
    expected = [kept.rows(sql), kept.rows(steps)]
    kept.close()
    with client.open(str(kept.folder)) as reader:
        assert [[tuple(r.values()) for r in reader.sql(q).to_pylist()] for q in (sql, steps)] == expected


@pytest.mark.parametrize("step", ["_write", "write_manifest", "publish"])
def test_a_crash_while_writing_leaves_no_trace(tmp_path: Path, messages, monkeypatch: pytest.MonkeyPatch, step: str):
    kept = Kept(tmp_path)
    kept.store.commit(messages)
    before = everything(kept)

    def fail(*args):
        raise OSError("no space left")

    monkeypatch.setattr(f"collector.archive.{step}", fail)
    with pytest.raises(OSError, match="no space"):
        kept.turn()
    monkeypatch.undo()
    assert everything(kept) == before
    assert [p.name for p in kept.folder.iterdir()] == ["lock"]
    assert kept.turn()
    assert everything(kept) == before
    kept.close()


@pytest.mark.parametrize("where", ["show", "delete"])
def test_a_crash_between_the_segment_and_the_deletion_doubles_nothing(
    tmp_path: Path, messages, monkeypatch: pytest.MonkeyPatch, where: str
):
    kept = Kept(tmp_path)
    kept.store.commit(messages)
    before = everything(kept)

    def fail(*args):
        raise OSError("killed")

    monkeypatch.setattr(f"collector.retention.Keeper._{where}", fail)
    with pytest.raises(OSError, match="killed"):
        kept.turn()
    monkeypatch.undo()
    assert (kept.folder / "segment-00000001").exists()
    assert everything(kept) == before
    kept.crash()
    kept.open()
    assert list(kept.folder.glob("segment-*")) == []
    assert everything(kept) == before
    assert kept.turn()
    assert everything(kept) == before
    kept.close()


def test_a_failed_deletion_is_repeated_without_a_restart(kept: Kept, messages, monkeypatch: pytest.MonkeyPatch):
    kept.store.commit(messages)
    before = everything(kept)
    with monkeypatch.context() as patch:
        patch.setattr("collector.retention.Keeper._thin", staticmethod(lambda *args: 1 / 0))
        with pytest.raises(ZeroDivisionError):
            kept.turn()
    assert everything(kept) == before
    assert kept.turn()
    assert everything(kept) == before
    assert len(list(kept.folder.glob("segment-*"))) == 1


def test_queries_while_events_leave_always_see_all_of_them(kept: Kept, messages):
    kept.store.commit(messages)
    total = kept.rows("SELECT count(*) FROM raw.page")[0][0]
    wrong: list[tuple] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            with kept.store.cursor() as db:
                got = db.execute("SELECT count(*), count(DISTINCT (seq, idx)) FROM raw.page").fetchone()
            if got != (total, total):
                wrong.append(got)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    kept.keeper._settle_s = 0.3
    for upto in range(500, len(messages) + 1, 500):
        kept.roller.roll({1: upto}, minutes=True)
        kept.keeper.turn({1: upto}, LATER)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(kept.keeper.archive.segments) == 4


def test_nothing_leaves_before_it_is_rolled_up(kept: Kept, messages):
    kept.store.commit(messages)
    assert not kept.keeper.turn({}, LATER)
    kept.roller.roll({1: 100}, minutes=True)
    assert kept.keeper.turn(kept.roller.done(), LATER)
    assert kept.rows("SELECT min(seq) FROM store.raw.batch") == [(101,)]


def test_a_server_whose_clock_jumps_back_keeps_its_events(kept: Kept, messages):
    """Its events say 2026-01-01; their age is that of their commit."""
    kept.store.commit(messages)
    assert not kept.turn(time.time())


def test_without_an_archive_old_events_are_dropped_and_their_workflows_names_too(tmp_path: Path, messages):
    kept = Kept(tmp_path, archive=None)
    kept.store.commit(messages[:-20])
    rollups = "SELECT sum(steps)::INT FROM raw.roll_batch_1m"
    kept.roller.roll(kept.store.stored(), minutes=True)
    before = kept.rows(rollups)
    names = kept.rows("SELECT count(*) FROM raw.name WHERE namespace <> 1")
    with kept.store.cursor() as db:
        db.execute("UPDATE store.raw.high_water SET t = t - INTERVAL 1000 SECOND")
    kept.store.commit(messages[-20:])
    assert kept.turn(time.time())
    assert kept.rows("SELECT count(*) FROM raw.batch") == [(20,)]
    assert kept.rows("SELECT segment FROM store.raw.cut") == [(0,)]
    assert kept.rows(rollups)[0][0] == before[0][0] + 20
    assert kept.rows("SELECT count(*) FROM raw.name WHERE namespace <> 1") == names
    assert kept.rows("SELECT count(*) FROM call WHERE workflow LIKE '#%' OR agent LIKE '#%'") == [(0,)]
    kept.close()


def test_a_name_that_was_dropped_is_stored_again_when_it_comes_again(tmp_path: Path, messages):
    kept = Kept(tmp_path, archive=None)
    kept.store.commit(messages)
    with kept.store.cursor() as db:
        names = {i for (i,) in db.execute("SELECT id FROM store.raw.name WHERE namespace = 1").fetchall()}
        db.execute("DELETE FROM store.raw.name WHERE namespace = 1")
    kept.store.forget_names(1, names)
    again = [
        Message(m.header.__class__(**{**vars(m.header), "seq": 0, "flags": FLAG_NAMES}), {"name": m.tables["name"]})
        for m in messages if "name" in m.tables
    ]
    kept.store.commit(again)
    assert {i for (i,) in kept.rows("SELECT id FROM raw.name WHERE namespace = 1")} == names
    kept.close()


def test_the_database_stays_within_its_bytes(tmp_path: Path, messages):
    """Ten times as much goes through as may stay."""
    limit = 12 << 20
    kept = Kept(tmp_path, keep_s=None, keep_bytes=limit)
    written = 0
    for epoch in range(10, 20):
        for start in range(0, len(messages), 400):
            part = [Message(m.header.__class__(**{**vars(m.header), "epoch": epoch}), m.tables) for m in messages[start : start + 400]]
            kept.store.commit(part)
        written += len(messages)
        kept.turn(time.time())
        with kept.store.cursor() as db:
            db.execute("CHECKPOINT store")
            assert used_bytes(db) < 2 * limit
    assert kept.path.stat().st_size < 3 * limit
    assert kept.keeper.segments >= 2
    assert kept.rows("SELECT count(*) FROM raw.batch") == [(written,)]
    kept.close()


def test_an_archive_stays_within_its_limits_and_files_go_a_minute_later(tmp_path: Path, messages):
    kept = Kept(tmp_path, archive_bytes=1)
    kept.store.commit(messages[:500])
    kept.turn()
    assert kept.rows("SELECT count(*) FROM raw.batch") == [(500,)]
    kept.store.commit(messages[500:])
    kept.turn()
    assert kept.rows("SELECT count(*) FROM raw.batch") == [(len(messages) - 500,)]
    now = LATER + 1
    kept.turn(now)
    assert kept.rows("SELECT count(*) FROM raw.batch") == [(0,)]
    assert kept.rows("SELECT count(*) FROM raw.name WHERE namespace = 1") == [(0,)]
    assert len(list(kept.folder.glob("segment-*"))) == 2
    kept.turn(now + 58)
    assert len(list(kept.folder.glob("segment-*"))) == 2
    kept.turn(now + 61)
    assert list(kept.folder.glob("segment-*")) == []
    kept.close()
    kept.open()
    assert kept.rows("SELECT count(*) FROM raw.batch") == [(0,)]
    kept.close()


def test_an_archive_by_age(tmp_path: Path, messages):
    kept = Kept(tmp_path, archive_keep_s=20_000.0)
    kept.store.commit(messages)
    kept.turn()
    kept.turn(time.time() + 19_000)
    assert kept.rows("SELECT count(*) > 0 FROM raw.batch") == [(True,)]
    kept.turn(time.time() + 21_000)
    assert kept.rows("SELECT count(*) > 0 FROM raw.batch") == [(False,)]
    kept.close()


def test_an_archive_of_another_database_in_use_or_newer_is_refused(tmp_path: Path, messages):
    kept = Kept(tmp_path)
    kept.store.commit(messages)
    copy = tmp_path / "copy.duckdb"
    kept.turn()
    with pytest.raises(UsageError, match="in use by another collector"):
        Archive(kept.folder, "x")
    kept.close()
    with pytest.raises(UsageError, match="belongs to another database"):
        Archive(kept.folder, "x")
    shutil.copy(kept.path, copy)
    for epoch in (8, 9):
        kept.open()
        kept.store.commit([decode(p) for p in record(1, epoch=epoch)])
        kept.turn()
        kept.close()
    shutil.move(copy, kept.path)
    with pytest.raises(UsageError, match="2 segments that the database does not know of"):
        kept.open()
    kept.store.close()
    assert len(list(kept.folder.glob("segment-*"))) == 3


@pytest.mark.parametrize(
    "damage",
    [b"", b"{}", b"[]", b"nonsense", b"[" * 100_000, b'{"id": 1, "schema_version": 1, "made": "x", "tables": {}}'],
)
def test_a_damaged_manifest_is_named(tmp_path: Path, messages, damage: bytes):
    folder = archived(tmp_path, messages)
    (folder / "segment-00000001" / "manifest.json").write_bytes(damage)
    with pytest.raises(UsageError, match=r"segment-00000001.*manifest cannot be read"):
        client.open(str(folder))


def test_a_missing_file_a_newer_segment_and_a_strange_column(tmp_path: Path, messages):
    folder = archived(tmp_path, messages)
    manifest = folder / "segment-00000001" / "manifest.json"
    good = manifest.read_text()
    for bad, words in (
        (good.replace('"schema_version": ', '"schema_version": 9'), "is newer than this release's"),
        (good.replace('"format": 1', '"format": 2'), "is newer"),
        (good.replace('"seq"', '"seq FROM x; --"'), "manifest cannot be read"),
        (good.replace('"id": 1', '"id": 2'), "its name does not fit"),
    ):
        assert bad != good
        manifest.write_text(bad)
        with pytest.raises(UsageError, match=words):
            client.open(str(folder))
    manifest.write_text(good)
    (folder / "segment-00000001" / "batch.parquet").unlink()
    with pytest.raises(UsageError, match="batch does not fit its manifest"):
        client.open(str(folder))


def archived(tmp_path: Path, messages) -> Path:
    kept = Kept(tmp_path)
    kept.store.commit(messages[:200])
    kept.turn()
    kept.close()
    return kept.folder


def test_an_archive_reader_can_touch_nothing_else(tmp_path: Path, messages):
    folder = archived(tmp_path, messages)
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with client.open(str(folder)) as reader:
        for sql in (f"FROM read_csv('{tmp_path}/secret.csv')", f"FROM '{tmp_path}/secret.csv'", f"FROM '{folder}/lock'"):
            with pytest.raises(PbkvError, match=r"not allowed|operations are disabled|failed"):
                reader.sql(sql)


def test_a_segment_with_fewer_columns_is_read_beside_a_newer_one(tmp_path: Path, messages):
    kept = Kept(tmp_path)
    for part in (messages[:200], messages[200:400]):
        kept.store.commit(part)
        kept.turn()
    kept.close()
    older = kept.folder / "segment-00000001"
    duckdb.execute(f"COPY (SELECT * EXCLUDE tokens FROM '{older}/batch.parquet') TO '{older}/new' (FORMAT parquet)")
    (older / "new").rename(older / "batch.parquet")
    manifest = older / "manifest.json"
    text = manifest.read_text()
    at = text.index('"batch":')
    manifest.write_text(text[:at] + text[at:].replace('"tokens", ', "", 1))
    with client.open(str(kept.folder)) as reader:
        rows = reader.sql("SELECT seq, tokens FROM batch ORDER BY seq").to_pylist()
    assert [r["tokens"] is None for r in rows] == [r["seq"] <= 200 for r in rows]
