"""`pbkv query` and `pbkv top --once` over files: formats, parameters, refusals."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from collector.views.library import QUERIES
from console.main import run
from tests.support.stream import fill

Out = pytest.CaptureFixture[str]


def parquet_query(db: str) -> list[str]:
    return [sys.executable, "-m", "console.main", "query", db, "accuracy", "--format", "parquet"]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("query") / "fill.duckdb"
    fill(path, seconds=20, seed=2)
    return str(path)


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_every_stored_question_is_answered(db: str, name: str, capsys: Out) -> None:
    assert run(["query", db, name, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert not rows or list(rows[0]) == list(QUERIES[name].columns)


def test_a_table_is_aligned_and_numbers_stand_right(db: str, capsys: Out) -> None:
    assert run(["query", db, "SELECT 'x' AS name, 1 AS n UNION ALL SELECT 'longer', 1000 ORDER BY n"]) == 0
    assert capsys.readouterr().out.splitlines() == ["name       n", "x          1", "longer  1000"]


def test_null_and_newlines_stay_in_their_cell(db: str, capsys: Out) -> None:
    assert run(["query", db, "SELECT NULL AS a, E'one\\ntwo' AS b"]) == 0
    assert capsys.readouterr().out.splitlines() == ["a  b", "-  one two"]


def test_csv(db: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code = f"import sys; from console.main import run; sys.exit(run(['query', {db!r}, 'SELECT 1 AS a, 2 AS b', '--format', 'csv']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert list(csv.reader(io.StringIO(done.stdout))) == [["a", "b"], ["1", "2"]]


def test_parquet_to_a_pipe(db: str, tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    with out.open("wb") as file:
        done = subprocess.run(parquet_query(db), stdout=file, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert parquet.read_table(out).column_names == ["horizon", "scored", "correct", "end_share"]


def test_parquet_on_a_terminal_is_refused(db: str) -> None:
    main, side = pty.openpty()
    try:
        done = subprocess.run(parquet_query(db), stdout=side, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(side)
        os.close(main)
    assert done.returncode == 2 and "terminal" in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_parameters_reach_the_sql_as_numbers_or_text(db: str, capsys: Out) -> None:
    assert run(["query", db, "SELECT $n + 1 AS n, $s AS s", "--param", "n=41", "--param", "s=a b", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 42, "s": "a b"}]


def test_a_window_can_be_named(db: str, capsys: Out) -> None:
    calls: list[int] = []
    for window in ("5", "3600"):
        assert run(["query", db, "hit_rate", "--param", f"window_s={window}", "--format", "json"]) == 0
        calls.append(json.loads(capsys.readouterr().out)[0]["calls"])
    assert 0 < calls[0] < calls[1]


@pytest.mark.parametrize(("args", "words"), [
    (["nosuch"], ["'nosuch'", "hit_rate"]),
    (["accuracy", "--format", "xml"], ["--format 'xml'", "parquet"]),
    (["accuracy", "--param", "x"], ["--param 'x'", "NAME=VALUE"]),
    (["accuracy", "--param", "x=1"], ["--param x", "window_s"]),
    (["accuracy", "--param", "window_s=0"], ["window_s=0", "above 0"]),
    (["accuracy", "--param", "window_s=true"], ["window_s"]),
    (["accuracy", "--param", "window_s=ten"], ["window_s=ten"]),
    (["accuracy", "--param", "server=nope"], ["'nope'", "synthetic-0"]),
    (["accuracy", "--param", "server=a", "--param", "server=b"], ["twice"]),
    (["drop table call"], ["SELECT"]),
    (["select 1; select 2"], ["SELECT"]),
    (["select nothing from call"], ["nothing"]),
    (["select * from read_csv('/etc/passwd')"], ["read_csv"]),
    (["select $x + 1"], ["x"]),
])
def test_bad_questions_are_one_sentence_and_exit_2(db: str, args: list[str], words: list[str], capsys: Out) -> None:
    assert run(["query", db, *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1, captured.err
    for word in words:
        assert word in captured.err


def test_a_file_that_is_no_database(tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "x.duckdb"
    path.write_bytes(b"this is no database at all" * 500)
    for args in (["query", str(path), "loss"], ["top", str(path), "--once", "--json"]):
        assert run(args) == 2
        assert "not a DuckDB file" in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: Out) -> None:
    assert run(["query", str(tmp_path / "none.duckdb"), "loss"]) == 2
    assert "none.duckdb" in capsys.readouterr().err


def test_a_collector_that_is_not_there_exits_1(capsys: Out, port: int) -> None:
    assert run(["query", f"grpc://127.0.0.1:{port}", "loss"]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_once_prints_the_overview_as_json(db: str, capsys: Out) -> None:
    assert run(["top", db, "--once", "--json"]) == 0
    o = json.loads(capsys.readouterr().out)
    assert (o["status"], o["server"]["name"]) == ("recorded", "synthetic-0")
    assert o["hit_rate"]["calls"] > 0 and len(o["accuracy"]) >= 5 and o["workflows"]


@pytest.mark.parametrize("flag", ["--once", "--json"])
def test_once_and_json_go_together(db: str, flag: str, capsys: Out) -> None:
    assert run(["top", db, flag]) == 2
    assert "--once and --json go together" in capsys.readouterr().err


def test_the_screen_needs_a_terminal(db: str) -> None:
    done = subprocess.run([sys.executable, "-m", "console.main", "top", db], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 2 and "needs a terminal" in done.stderr
