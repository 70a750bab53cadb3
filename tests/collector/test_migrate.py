"""Files of earlier releases: read as they are, migrated when written, and refused when they cannot be."""

import json
import lzma
from pathlib import Path

import duckdb
import pytest

from collector import client
from collector.columns import quoted
from collector.store import Store
from collector.stream import Key
from collector.tables import STORE_VERSION, raw_tables
from collector.views.overview import load_overview
from pbkv.errors import UsageError
from pbkv.events.schema import DIGEST, EVENT_KINDS, SCHEMA_VERSION, manifest
from pbkv.events.wire import decode
from tests.support.stream import fill, record

RELEASED = sorted((Path(__file__).parent / "data").glob("*_v*.duckdb.xz"))
STREAMS = {Key("synthetic-0", 1, 0): 1550, Key("synthetic-0", 2, 0): 150}


@pytest.fixture(params=RELEASED, ids=lambda p: p.name.partition(".")[0])
def released(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "old.duckdb"
    path.write_bytes(lzma.decompress(request.param.read_bytes()))
    return path


def contents(path: Path) -> dict[str, list]:
    with client.open(str(path)) as reader:
        return {name: reader.sql(f"SELECT * FROM {name} ORDER BY ALL").to_pylist() for name in (*EVENT_KINDS, "loss", "source", "raw.name")}


def test_there_is_a_file_of_every_earlier_event_schema_and_store_version():
    schemas = (f"schema_v{n}.duckdb.xz" for n in range(1, SCHEMA_VERSION))
    stores = (f"store_v{n}.duckdb.xz" for n in range(1, STORE_VERSION))
    assert [p.name for p in RELEASED] == [*schemas, *stores]


def test_what_an_earlier_event_schema_did_not_know_is_nothing(released: Path):
    Store(released).close()
    with client.open(str(released)) as reader:
        assert reader.sql("SELECT count(*) AS n FROM setting").to_pylist() == [{"n": 0}]
        row = reader.sql("SELECT count(arrived_s) AS n, count(max_tokens) AS m, count(*) > 0 AS there FROM call").to_pylist()
    assert row == [{"n": 0, "m": 0, "there": True}]


def test_an_old_file_is_read_without_being_changed(released: Path):
    before = released.read_bytes()
    with client.open(str(released)) as reader:
        assert reader.sql("SELECT count(*) AS n FROM batch").to_pylist() == [{"n": 1690}]
        assert reader.sql("SELECT sum(calls)::INT AS n FROM raw.roll_call_1m").to_pylist() == reader.sql(
            "SELECT count(*)::INT AS n FROM raw.call"
        ).to_pylist()
        assert load_overview(reader, 3600).hit_rate.calls > 0
    assert released.read_bytes() == before


def test_an_old_file_opens_for_writing_with_everything_in_it(released: Path):
    before = contents(released)
    store = Store(released)
    assert store.high_water() == STREAMS
    store.commit([decode(record(4, seed=2, epoch=2)[150])])
    assert store.high_water()[Key("synthetic-0", 2, 0)] == 151
    store.close()
    after = contents(released)
    assert [r for r in after["batch"] if not (r["epoch"] == 2 and r["seq"] == 151)] == before["batch"]
    assert {k: after[k] for k in ("loss", "source", "knob", "workflow")} == {k: before[k] for k in ("loss", "source", "knob", "workflow")}


def test_a_migrated_file_is_as_a_new_one(released: Path, tmp_path: Path):
    Store(released).close()
    Store(tmp_path / "new.duckdb").close()
    sql = "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
    shapes = []
    for path in (released, tmp_path / "new.duckdb"):
        with duckdb.connect(str(path), read_only=True) as db:
            shapes.append(db.execute(sql).fetchall())
            assert db.execute("SELECT schema_version, digest, store_version FROM meta").fetchone() == (
                SCHEMA_VERSION, DIGEST.hex(), STORE_VERSION,
            )
    assert shapes[0] == shapes[1]


def test_the_age_of_the_file_survives(released: Path):
    with duckdb.connect(str(released), read_only=True) as db:
        before = db.execute("SELECT created FROM meta").fetchone()
    Store(released).close()
    with duckdb.connect(str(released), read_only=True) as db:
        assert db.execute("SELECT created FROM meta").fetchone() == before


def test_migrating_twice_changes_nothing(released: Path):
    Store(released).close()
    before = contents(released)
    Store(released).close()
    assert contents(released) == before


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "events.duckdb"
    fill(path, seconds=3)
    return path


def alter(path: Path, *statements: str) -> None:
    with duckdb.connect(str(path)) as db:
        for name in EVENT_KINDS:
            db.execute(f"DROP VIEW {name}")
        for statement in statements:
            db.execute(statement)
        db.execute("UPDATE meta SET digest = 'of another schema'")


def test_a_missing_table_and_a_missing_column_are_added_and_read_as_nothing(path: Path):
    alter(path, "DROP TABLE raw.pcie_window", "ALTER TABLE raw.call DROP COLUMN end_page")
    for _ in range(2):
        with client.open(str(path)) as reader:
            assert reader.sql("SELECT count(*) AS n FROM pcie_window").to_pylist() == [{"n": 0}]
            assert set(reader.sql("SELECT end_page FROM call").to_pydict()["end_page"]) == {None}
        Store(path).close()


def test_a_new_column_is_filled_from_then_on(path: Path):
    alter(path, "ALTER TABLE raw.batch DROP COLUMN tokens")
    store = Store(path)
    store.commit([decode(p) for p in record(4)[150:]])
    store.close()
    with client.open(str(path)) as reader:
        rows = reader.sql("SELECT seq, tokens FROM batch ORDER BY seq").to_pylist()
    assert [r["tokens"] is None for r in rows] == [r["seq"] <= 150 for r in rows]


def test_a_column_of_another_type_is_refused(path: Path):
    alter(path, "ALTER TABLE raw.batch ALTER COLUMN tokens TYPE VARCHAR")
    with pytest.raises(UsageError, match=r"raw\.batch\.tokens is VARCHAR.*collect into a new file"):
        Store(path)


def test_codes_with_another_meaning_are_refused(path: Path):
    other = json.loads(json.dumps(manifest()))
    field = next(f for f in other["kinds"]["batch"]["fields"] if f["name"] == "mode")
    field["values"].reverse()
    alter(path, f"UPDATE meta SET manifest = {quoted(json.dumps(other))}")
    with pytest.raises(UsageError, match=r"codes of batch\.mode .* collect into a new file"):
        Store(path)


def test_a_code_that_was_added_at_the_end_is_fine(path: Path):
    other = json.loads(json.dumps(manifest()))
    field = next(f for f in other["kinds"]["batch"]["fields"] if f["name"] == "mode")
    field["values"].pop()
    other["kinds"]["batch"]["fields"].append({"name": "gone", "values": ["x"]})
    other["kinds"]["gone"] = {"fields": []}
    alter(path, f"UPDATE meta SET manifest = {quoted(json.dumps(other))}")
    Store(path).close()


@pytest.mark.parametrize("column", ["schema_version", "store_version"])
def test_a_newer_file_is_refused_with_the_version_it_needs(path: Path, column: str):
    with duckdb.connect(str(path)) as db:
        db.execute(f"UPDATE meta SET {column} = 77")
    for open_it in (Store, lambda p: client.open(str(p))):
        with pytest.raises(UsageError, match=r"77.* is newer than this release's"):
            open_it(path)


def test_a_file_of_something_else_is_not_touched(tmp_path: Path):
    path = tmp_path / "x.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE meta(i INT)")
    with pytest.raises(UsageError, match="not an event store"):
        Store(path)
    with duckdb.connect(str(path), read_only=True) as db:
        assert db.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("meta",)]


def test_a_crash_in_the_middle_leaves_the_old_file(released: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("collector.migrate.view_statements", lambda: ["SELECT error('the power failed')"])
    with duckdb.connect(str(released), read_only=True) as db:
        before = db.execute("FROM meta").fetchone()
    with pytest.raises(Exception, match="power"):
        Store(released)
    monkeypatch.undo()
    with duckdb.connect(str(released), read_only=True) as db:
        assert db.execute("FROM meta").fetchone() == before
        assert db.execute("SELECT count(*) FROM raw.batch").fetchone() == (1690,)
    Store(released).close()
    with client.open(str(released)) as reader:
        assert reader.sql("SELECT count(*) AS n FROM batch").to_pylist() == [{"n": 1690}]


def test_every_table_says_what_it_holds():
    for name, (row, columns) in raw_tables().items():
        assert row and columns, name
        assert len({c.name for c in columns}) == len(columns)
