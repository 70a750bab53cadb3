"""`pbkv whatif` over a log and over traces: answers, refusals in a sentence, and Ctrl-C."""

import json
import lzma
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from collector.store import Store
from console.main import run
from console.whatif.running import Interrupt, left, progress
from pbkv.whatif.run import Pace
from pbkv.workloads.hover_like import HoverLike
from tests.whatif.runs import make_engine, run_play

Out = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of the embedded engine with a host tier."""
    engine = make_engine({"device_tokens": 60_032, "host_tokens": 60_032}, {})
    return str(run_play(engine, HoverLike(delay_scale=8.0), workflows=16).store(tmp_path_factory.mktemp("whatif") / "run.duckdb"))


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PBKV_STATE_DIR", str(tmp_path / "state"))


def mooncake(path: Path, calls: int) -> Path:
    """Requests of which each shares its first blocks with the one three before."""
    with path.open("w") as file:
        for n in range(calls):
            blocks = [n % 3, 10 + n % 3, 20 + n, 10_000 + n]
            file.write(json.dumps({"timestamp": 1000 * n, "input_length": 2048, "output_length": 20, "hash_ids": blocks}) + "\n")
    return path


def answer(capsys: Out, *args: str) -> dict[str, Any]:
    assert run(["whatif", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# ---- answers -----------------------------------------------------------------------------------------------------------------


def test_without_a_setting_it_says_how_well_the_present_is_replayed(db: str, capsys: Out) -> None:
    assert run(["whatif", db]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith(f"replayed: {db}, 2026-01-01 12:00") and " calls of " in lines[0]
    assert lines[1].startswith("residual (replayed less measured): device hits +0.0")
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert rows["figure"][:4] == ["figure", "measured", "replayed", "residual"]
    assert rows["hit"][2] == "%" and abs(float(rows["hit"][1]) - float(rows["hit"][3])) <= 0.15
    assert "--policy" in lines[-1] and "--device-tokens" in lines[-1] and err == ""


def test_a_grid_is_a_table_beside_the_present(db: str, capsys: Out) -> None:
    assert run(["whatif", db, "--policy", "lru,he", "--gamma", "0.5,0.8", "--device-tokens", "x1,x2", "--sort", "hit"]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(n for n, line in enumerate(lines) if line.startswith("policy"))
    rows = lines[header + 1 : lines.index("", header)]
    assert len(rows) == 6 and sum(row.endswith("present") for row in rows) == 1
    assert rows[0].startswith("he") and "120k" in rows[0] and "best" in rows[0] and sum(" any " in row for row in rows) == 2
    assert any(line.startswith("best: policy=he gamma=") for line in lines)


def test_json_and_a_page_of_one_run(db: str, tmp_path: Path, capsys: Out) -> None:
    page = tmp_path / "grid.html"
    axes = ["--policy", "lru,he", "--device-tokens", "x0.75:x1.25:x0.25"]
    judged = ["--under", "ttft_p95<10s", "--under", "hit>1%", "--best", "moved_bytes"]
    assert run(["whatif", db, *axes, *judged, "--json", "--html", str(page)]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err.strip() == f"written: {page}"
    assert [c["setting"]["device_tokens"] for c in found["cells"]] == [45_024, 60_032, 75_040] * 2
    assert found["asked"] == 6 and not found["stopped"] and found["failed"] == [] and found["best"]["sure"]
    least = min(found["cells"], key=lambda c: c["figures"]["moved_bytes"]["value"])
    assert found["best"]["setting"] == least["setting"]
    text = page.read_text()
    assert "miss-ratio curve" in text and "clairvoyant bound" in text and "pbkv whatif" not in text.split("command")[0] and "digest" in text


def test_what_was_replayed_once_is_known(db: str, capsys: Out) -> None:
    first = answer(capsys, db, "--policy", "lru,lae")
    again = answer(capsys, db, "--policy", "lae,lru", "--workers", "1")
    assert (first["replayed"], again["replayed"]) == (3, 0)
    assert {json.dumps(c) for c in first["cells"]} == {json.dumps(c) for c in again["cells"]}


def test_a_window_holds_its_calls(db: str, capsys: Out) -> None:
    whole, part = answer(capsys, db), answer(capsys, db, "--last", "3m")
    assert part["window"] > whole["window"] and part["window"].endswith(whole["window"][-12:])
    cut = answer(capsys, db, "--from", "2026-01-01T12:01:00", "--to", "2026-01-01T14:04:00+02:00")
    assert cut["window"].startswith("2026-01-01 12:01:0") and " to 2026-01-01 12:03:5" in cut["window"]


def test_some_settings_may_fail(db: str, capsys: Out) -> None:
    assert run(["whatif", db, "--device-tokens", "1024,x1", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert len(found["cells"]) == 1 and found["failed"][0]["setting"] == {"device_tokens": 1024}
    assert err.startswith("failed: device_tokens=1024: ") and len(err.splitlines()) == 1


def test_if_all_fail_the_status_says_so(db: str, capsys: Out) -> None:
    assert run(["whatif", db, "--device-tokens", "1024"]) == 1
    assert "failed" in capsys.readouterr().err


def test_a_trace_is_compared_with_its_first_setting(tmp_path: Path, capsys: Out) -> None:
    trace = str(mooncake(tmp_path / "t.jsonl", 60))
    found = answer(capsys, trace, "--device-tokens", "8k,16k", "--policy", "lru,lae", "--page-size", "512")
    assert found["residuals"] == {} and found["workflows"] == 60 and found["window"] == ""
    first = found["cells"][0]
    assert first["setting"] == {"policy": "lru", "device_tokens": 8000} and first["figures"]["hit"]["change"] == 0
    assert found["present"]["hit"] == first["figures"]["hit"]["value"] < found["cells"][1]["figures"]["hit"]["value"]
    assert answer(capsys, trace, "--device-tokens", "8k", "--page-size", "512", "--workflows", "10")["calls"] == 10
    assert answer(capsys, trace, "--timing", "qwen3-14b@h100", "--page-size", "512")["calls"] == 60


def test_agent_calls_are_enough_for_all_policies(tmp_path: Path, capsys: Out) -> None:
    rows = [
        {"workflow": f"w{n}", "step": m, "agent": "abc"[(n + m) % 3], "output_tokens": 200} for n in range(12) for m in range(6)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "calls.parquet")
    policies = "lru,lae,session_lae,kvflow,he,first_use"
    found = answer(capsys, str(tmp_path / "calls.parquet"), "--device-tokens", "16k,32k", "--policy", policies)
    assert len(found["cells"]) == 12 and found["calls"] == 72


# ---- refusals ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("args", "words"), [
    (["--policy", "best"], ["policy 'best'", "first_use"]),
    (["--gamma", "nan"], ["gamma 'nan'", "from 0 to 1"]),
    (["--gamma", "1:0:0.1"], ["gamma '1:0:0.1'"]),
    (["--device-tokens", "-5"], ["device-tokens '-5'"]),
    (["--host-tokens", "-1k"], ["host-tokens '-1k'"]),
    (["--device-tokens", "5"], ["device"]),
    (["--budget", "-64MiB"], ["budget '-64MiB'"]),
    (["--concurrency", "0"], ["concurrency '0'"]),
    (["--predictor", "oracle"], ["'oracle'", "markov"]),
    (["--gamma", "0:0.999:0.001", "--concurrency", "1:1000:1"], ["1,000,000 settings", "2,000"]),
    (["--under", "speed<1s"], ["--under", "ttft_p95"]),
    (["--under", "ttft_p95<nan"], ["--under", "'ttft_p95<nan'"]),
    (["--best", "luck"], ["--best", "hit"]),
    (["--sort", "luck"], ["--sort", "hit"]),
    (["--last", "soon"], ["--last 'soon'", "15m"]),
    (["--last", "5m", "--to", "2026-01-01"], ["--last and --from"]),
    (["--from", "noon"], ["--from 'noon'", "ISO"]),
    (["--from", "2026-01-02", "--to", "2026-01-01"], ["2026-01-02"]),
    (["--from", "2030-01-01"], ["no calls in this window"]),
    (["--server", "nope"], ["'nope'", "embedded"]),
    (["--given", "device_tokens"], ["--given 'device_tokens'", "NAME=VALUE"]),
    (["--given", "device_tokens=lots"], ["not a number"]),
    (["--page-size", "16"], ["--page-size", "traces"]),
    (["--html", "/nowhere/at/all.html"], ["--html"]),
    (["--workers", "0"], ["--workers"]),
])
def test_what_cannot_be_asked_is_one_sentence_and_exit_2(db: str, args: list[str], words: list[str], capsys: Out) -> None:
    assert run(["whatif", db, *args]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.strip().splitlines()) == 1, err
    for word in words:
        assert word in err


def empty_log(folder: Path) -> Path:
    Store(folder / "empty.duckdb").close()
    return folder / "empty.duckdb"


def other_schema(folder: Path) -> Path:
    with duckdb.connect(str(folder / "other.duckdb")) as db:
        db.execute("CREATE TABLE call (a INTEGER)")
    return folder / "other.duckdb"


def text(name: str, content: str) -> Any:
    def make(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return make


@pytest.mark.parametrize(("make", "words"), [
    (empty_log, ["no calls"]),
    (other_schema, ["other.duckdb"]),
    (lambda folder: folder / "none.duckdb", ["none.duckdb"]),
    (lambda folder: folder / "none.jsonl", ["none.jsonl"]),
    (text("x.duckdb", "no database" * 900), ["not a DuckDB file"]),
    (text("x.jsonl", ""), ["x.jsonl"]),
    (text("x.jsonl", '{"speed": 1}\n'), ["x.jsonl"]),
    (text("x.json", "[1, 2"), ["x.json"]),
    (text("x.parquet", "PAR1"), ["x.parquet"]),
])
def test_what_is_no_source_is_one_sentence_and_exit_2(make: Any, words: list[str], tmp_path: Path, capsys: Out) -> None:
    source = str(make(tmp_path))
    axes = ["--device-tokens", "64k"] if "duckdb" not in source else []
    assert run(["whatif", source, *axes]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.strip().splitlines()) == 1, err
    for word in words:
        assert word in err


@pytest.mark.parametrize(("args", "words"), [
    ([], ["--device-tokens", "500k"]),
    (["--device-tokens", "x2"], ["--device-tokens 'x2'", "tokens"]),
    (["--device-tokens", "8k", "--policy", "he"], ["needs agents", "lru"]),
    (["--device-tokens", "8k", "--last", "5m"], ["--last", "logs"]),
    (["--device-tokens", "8k", "--given", "a=b"], ["--given", "logs"]),
    (["--device-tokens", "8k", "--layout", "round"], ["--layout 'round'", "private"]),
    (["--device-tokens", "8k", "--page-size", "0"], ["--page-size 0"]),
    (["--device-tokens", "8k", "--timing", "abacus"], ["abacus"]),
    (["--device-tokens", "8k", "--workflows", "0"], ["workflows"]),
])
def test_what_a_trace_cannot_answer(args: list[str], words: list[str], tmp_path: Path, capsys: Out) -> None:
    assert run(["whatif", str(mooncake(tmp_path / "t.jsonl", 5)), *args]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.strip().splitlines()) == 1, err
    for word in words:
        assert word in err


def test_one_call_is_replayed(tmp_path: Path, capsys: Out) -> None:
    found = answer(capsys, str(mooncake(tmp_path / "t.jsonl", 1)), "--device-tokens", "8k,16k")
    assert found["calls"] == 1 and all(cell["figures"]["hit"]["value"] == 0 for cell in found["cells"])


def test_an_old_log_says_what_it_lacks(tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "old.duckdb"
    path.write_bytes(lzma.decompress((Path(__file__).parents[1] / "collector" / "data" / "schema_v1.duckdb.xz").read_bytes()))
    assert run(["whatif", str(path)]) == 2
    assert "page_size" in (err := capsys.readouterr().err) and "--given" in err and len(err.strip().splitlines()) == 1
    assert run(["whatif", str(path), "--given", "page_size=16", "--given", "device_tokens=8"]) == 2
    assert "device" in capsys.readouterr().err


def test_a_collector_that_is_not_there_exits_1(capsys: Out, port: int) -> None:
    assert run(["whatif", f"grpc://127.0.0.1:{port}"]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


# ---- progress and Ctrl-C -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So many calls that a grid over it takes a while."""
    return mooncake(tmp_path_factory.mktemp("long") / "t.jsonl", 1500)


def sizes(count: int) -> list[str]:
    return ["--device-tokens", f"8192:{8192 + 512 * (count - 1)}:512", "--page-size", "512", "--workers", "1"]


def until_bar(main: int, fraction: int) -> str:
    """What the terminal shows until so many settings are finished."""
    shown = ""
    while f" {fraction}/" not in shown:
        shown += os.read(main, 4096).decode(errors="replace")
    return shown


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    main, side = pty.openpty()
    yield main, side
    os.close(main)


def start(args: list[str], side: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "console.main", "whatif", *args]
    env = {**os.environ, "COLUMNS": "120"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=side, text=True, start_new_session=True, env=env)


def test_ctrl_c_leaves_what_is_finished(long_trace: Path, terminal: tuple[int, int], tmp_path: Path) -> None:
    main, side = terminal
    cells = ["--cells", str(tmp_path / "cells")]
    args = [str(long_trace), *sizes(24), *cells, "--json"]
    process = start(args, side)
    os.close(side)
    shown = until_bar(main, 2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group
    out, _ = process.communicate(timeout=120)
    found = json.loads(out)
    assert process.returncode == 130 and found["stopped"] and 2 <= len(found["cells"]) < 24 and "replaying" in shown
    rest = b""
    while chunk := _more(main):
        rest += chunk
    assert f"interrupted: {len(found['cells'])} of 24 settings are finished" in rest.decode() and "Traceback" not in rest.decode()
    done = subprocess.run([sys.executable, "-m", "console.main", "whatif", *args], capture_output=True, check=True)
    again = json.loads(done.stdout)
    assert len(again["cells"]) == 24 and again["replayed"] <= 24 - len(found["cells"]) + 2
    known = {json.dumps(cell["setting"]): cell["figures"] for cell in again["cells"]}
    assert all(known[json.dumps(cell["setting"])] == cell["figures"] for cell in found["cells"])


def _more(main: int) -> bytes:
    try:
        return os.read(main, 4096)
    except OSError:  # the other side is closed
        return b""


def test_the_second_interrupt_is_as_everywhere() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt().heard() as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("seconds", "words"), [
    (float("nan"), ""), (0.2, "1 s left"), (59.5, "1 min 00 s left"), (125.0, "2 min 05 s left"),
])
def test_time_left(seconds: float, words: str) -> None:
    assert left(seconds) == words


def test_away_from_a_terminal_short_runs_are_quiet(capsys: Out) -> None:
    with progress(10) as show:
        show(Pace(1, 10, 0, 5.0))
    assert capsys.readouterr().err == ""
