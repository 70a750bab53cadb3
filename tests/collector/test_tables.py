"""Tables, views, comments and docs all come from the schema table and say the same."""

from datetime import datetime
from pathlib import Path

import duckdb
import pytest

from collector.columns import quoted
from collector.docs import events_markdown
from collector.names import view_columns, view_statements
from collector.tables import STORE_VERSION, create_statements, kind_columns
from pbkv.events.schema import BY_NAME, DIGEST, EVENT_KINDS, KINDS, SCHEMA_VERSION


@pytest.fixture(scope="module")
def db() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(";".join([*create_statements(datetime(2026, 1, 2, 3, 4, 5)), *view_statements()]))
    return connection


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_a_raw_table_has_the_position_and_the_fields(db, kind):
    got = db.execute(f"SELECT column_name, column_type FROM (DESCRIBE raw.{kind.name})").fetchall()
    assert got[:5] == [("src", "USMALLINT"), ("seq", "UBIGINT"), ("idx", "UINTEGER"), ("sched_step", "UBIGINT"), ("t", "TIMESTAMP")]
    assert got[5:] == [(f.name, f.sql_type) for f in kind.fields]


@pytest.mark.parametrize("name", EVENT_KINDS)
def test_a_view_has_the_stream_in_front_and_text_for_ids_and_codes(db, name):
    got = dict(db.execute(f"SELECT column_name, column_type FROM (DESCRIBE {name})").fetchall())
    assert list(got)[:3] == ["server", "epoch", "rank"]
    assert got == {c.name: c.sql_type for c in view_columns(BY_NAME[name])}
    for field in BY_NAME[name].fields:
        assert (got[field.name] == "VARCHAR") == (field.ref is not None or bool(field.values))


@pytest.mark.parametrize("name", ["call", "loss", "source", *EVENT_KINDS])
def test_every_view_name_can_be_used_unquoted(db, name):
    assert db.execute(f"SELECT count(*) FROM {name} AS x, {name}").fetchone() == (0,)


def test_every_table_view_and_column_has_a_comment(db):
    tables = "SELECT schema_name || '.' || table_name FROM duckdb_tables() WHERE comment IS NULL"
    views = "SELECT view_name FROM duckdb_views() WHERE comment IS NULL AND NOT internal"
    columns = "SELECT table_name || '.' || column_name FROM duckdb_columns() WHERE comment IS NULL AND NOT internal"
    assert [db.execute(q).fetchall() for q in (tables, views, columns)] == [[], [], []]


def test_a_comment_carries_meaning_and_unit(db):
    found = db.execute("SELECT comment FROM duckdb_columns() WHERE table_name = 'call' AND column_name = 'ttft_ms'").fetchall()
    assert set(found) == {("arrival to first token (ms)",)}


def test_no_table_has_a_key_or_an_index(db):
    """An index or key would make the ingest transaction read and update; see collector.tables."""
    assert db.execute("SELECT count(*) FROM duckdb_indexes()").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM duckdb_constraints() WHERE schema_name = 'raw'").fetchone() == (0,)


def test_meta_tells_the_schema(db):
    got = db.execute("SELECT schema_version, digest, created, store_version FROM meta").fetchall()
    assert got == [(SCHEMA_VERSION, DIGEST.hex(), datetime(2026, 1, 2, 3, 4, 5), STORE_VERSION)]


def test_names_are_resolved_and_a_missing_one_shows_its_number(db):
    db.execute("BEGIN")
    db.execute("INSERT INTO raw.source VALUES (1, 's', 5, 0, NULL), (2, 't', 6, 1, NULL)")
    db.execute("INSERT INTO raw.name VALUES (1, 1, 0, 1, NULL, 7, 2, 'planner'), (2, 1, 0, 1, NULL, 7, 2, 'other')")
    zeros = ", ".join("0" for _ in BY_NAME["call"].fields[3:])
    for seq, workflow, agent in ((1, 0, 7), (2, 9, 0), (3, 9, 8)):
        db.execute(f"INSERT INTO raw.call VALUES (1, {seq}, 0, 1, NULL, {workflow}, {agent}, 0, {zeros})")
    assert db.execute("SELECT server, epoch, rank, workflow, agent, status FROM call ORDER BY seq").fetchall() == [
        ("s", 5, 0, None, "planner", "done"), ("s", 5, 0, "#9", None, "done"), ("s", 5, 0, "#9", "#8", "done"),
    ]
    db.execute("ROLLBACK")


@pytest.mark.parametrize("kind", [k for k in KINDS if any(f.values for f in k.fields) and k.name != "name"], ids=lambda k: k.name)
def test_every_code_shows_as_its_text(db, kind):
    db.execute("BEGIN")
    db.execute("INSERT INTO raw.source VALUES (1, 's', 5, 0, NULL)")
    for field in (f for f in kind.fields if f.values):
        for code in range(len(field.values)):
            values = ", ".join(str(code) if f is field else "0" for f in kind.fields)
            db.execute(f"INSERT INTO raw.{kind.name} VALUES (1, {code}, 0, 1, NULL, {values})")
        shown = db.execute(f"SELECT {field.name} FROM {kind.name} ORDER BY seq").fetchall()
        assert [text for (text,) in shown] == list(field.values)
        db.execute(f"DELETE FROM raw.{kind.name}")
    db.execute("ROLLBACK")


def test_source_tells_engine_model_and_control_url(db):
    db.execute("BEGIN")
    db.execute("INSERT INTO raw.source VALUES (1, 's', 5, 0, NULL)")
    codes = BY_NAME["name"].field("namespace")
    for n, (namespace, text) in enumerate((("engine", "old"), ("engine", "sglang 0.5.23"), ("model", "m"), ("agent", "planner"))):
        db.execute(f"INSERT INTO raw.name VALUES (1, 1, {n}, 1, NULL, {n + 1}, {codes.code(namespace)}, '{text}')")
    assert db.execute("SELECT engine, model, control_url FROM source").fetchall() == [("sglang 0.5.23", "m", None)]
    db.execute("ROLLBACK")


def test_the_committed_docs_are_current():
    committed = Path("docs/events.md").read_text()
    assert committed == events_markdown(), "run `python -m collector.docs`"


def test_the_docs_name_every_kind_and_column():
    text = events_markdown()
    for name in EVENT_KINDS:
        assert f"\n## {name}\n" in text
        assert all(f"| `{c.name}` |" in text for c in view_columns(BY_NAME[name]))


def test_a_column_name_is_used_once_per_table():
    for kind in KINDS:
        names = [c.name for c in kind_columns(kind)]
        assert len(names) == len(set(names)), kind.name


def test_quoting():
    assert duckdb.execute("SELECT " + quoted("it's '' a \"test\"")).fetchone() == ("it's '' a \"test\"",)
