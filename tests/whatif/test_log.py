"""What a log says, read back: windows, warm starts, measured figures, and what is missing, each said in a sentence."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from collector.store import Store
from pbkv.engine.engine import Engine
from pbkv.errors import UsageError
from pbkv.events.wire import decode
from pbkv.knobs import KnobSet
from pbkv.whatif.digest import digest
from pbkv.whatif.forecast import Refused, estimates, fidelity, forecast
from pbkv.whatif.log import Reading, read_log
from pbkv.whatif.logcalls import page_size_of, read_calls
from pbkv.whatif.logwindow import Query, Window, find_span
from pbkv.whatif.planting import plant
from pbkv.whatif.recording import NOWHERE, Recording
from pbkv.whatif.replay import replay
from pbkv.whatif.setting import Setting
from tests.engine.invariants import check_engine
from tests.engine.workloads import Mixed
from tests.support.stream import record
from tests.whatif.actor import Actor, random_plan
from tests.whatif.runs import WALL_NS, Run, make_engine, opened, read, report, run_play

SHAPE: dict[str, Any] = {"page_size": 16, "device_tokens": 1500, "host_tokens": 3000}
START = datetime(1970, 1, 1) + timedelta(microseconds=WALL_NS / 1e3)


@pytest.fixture(scope="module")
def run() -> Run:
    return run_play(make_engine(SHAPE, {"policy": "he", "score_snapshot_s": 1.0}), Mixed(), concurrency=8, workflows=60)


@pytest.fixture(scope="module")
def path(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.store(tmp_path_factory.mktemp("log") / "run.duckdb")


@pytest.fixture
def query(path: Path) -> Iterator[Query]:
    with opened(path) as asked:
        yield asked


def stretch(run: Run, start: float, end: float) -> Window:
    took = (run.messages[-1].header.wall_ns - WALL_NS) / 1e9
    return Window(START + timedelta(seconds=start * took), START + timedelta(seconds=end * took))


# ---- what it reads ---------------------------------------------------------------------------------------------------------


def test_everything_about_the_server_is_read(query: Query, run: Run) -> None:
    recording = read_log(query)
    assert recording.engine == make_engine(SHAPE, {}).settings
    assert recording.knobs == {**KnobSet().values, "policy": "he", "score_snapshot_s": 1.0}
    assert (recording.name, recording.predictor, recording.concurrency, recording.losses) == ("embedded", "markov", 8, ())
    assert recording.calls == len(run.table("call"))
    assert (recording.began_s, recording.measured_from_s) == (0.0, -math.inf)
    assert recording.warm_nodes == recording.before == recording.history == ()


def test_calls_wait_for_those_that_had_ended(query: Query) -> None:
    for workflow in read_log(query).workflows:
        for n, call in enumerate(workflow.calls):
            since = workflow.start_s if call.after == NOWHERE else workflow.calls[call.after].ended
            assert call.delay_s >= 0 and since + call.delay_s == pytest.approx(call.arrived, abs=1e-9)
            assert call.after == n - 1, "an agent loop of one call at a time"


def test_measured_figures_are_those_of_the_rows(query: Query, run: Run) -> None:
    recording, calls = read_log(query), run.table("call")
    ended = calls[calls["arrived_s"] <= recording.measured_to_s]
    prompt = int(ended["prompt_tokens"].sum())
    assert recording.measured["hit_device"] == pytest.approx(int(ended["device_hit_tokens"].sum()) / prompt)
    assert recording.measured["hit_host"] == pytest.approx(int(ended["host_hit_tokens"].sum()) / prompt)
    evicted = run.table("eviction")
    assert recording.measured["evicted"] <= int(evicted["tokens"][evicted["from_tier"] == 1].sum())
    assert recording.measured["evicted"] == recording.measured["evicted_retired"] + recording.measured["evicted_live"]
    assert recording.measured["prefetches"] > 0


def test_pages_of_a_common_beginning_are_the_same_numbers(query: Query) -> None:
    calls = [call for workflow in read_log(query).workflows for call in workflow.calls]
    by_agent: dict[str, set[int]] = {}
    for call in calls:
        by_agent.setdefault(call.agent, set()).add(call.pages[0])
    assert all(len(first) == 1 for first in by_agent.values()), "an agent's prompts begin alike"
    assert len({next(iter(first)) for first in by_agent.values()}) == len(by_agent)


# ---- a stretch in the middle -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reading", [Reading(), Reading(warm_calls=0), Reading(warm_calls=40), Reading(warm_calls=0, start="cold")])
def test_a_stretch_is_replayed_near_to_what_was_measured(path: Path, run: Run, reading: Reading) -> None:
    recording = read(path, replace(reading, window=stretch(run, 0.4, 0.8)))
    known = fidelity(recording, tolerance=1.0, jitters=0)
    errors = {name: abs(residual.error) for name, residual in known.residuals.items()}
    planted = reading.start == "snapshot"
    assert errors["hit"] < (0.03 if planted else 0.2)
    # The number of calls that are compared is the same on both sides.
    inside = [c for w in recording.workflows for c in w.calls if recording.measured_from_s <= c.arrived <= recording.measured_to_s]
    assert len(known.present.calls) == len(inside) > 50
    assert (not planted) == any("begins empty" in loss for loss in recording.losses)


def test_a_snapshot_brings_back_what_was_cached(path: Path, run: Run) -> None:
    recording = read(path, Reading(stretch(run, 0.5, 0.8), warm_calls=0))
    device = sum(len(node.pages) for node in recording.warm_nodes if node.on_device)
    host = sum(len(node.pages) for node in recording.warm_nodes if node.on_host)
    # The rest of the device is held by running calls, whose outputs are not in the tree yet.
    assert 0.3 * 1500 // 16 <= device <= 1500 // 16 + 8
    assert 0.6 * 3000 // 16 <= host <= 3000 // 16 + 8
    assert not all(node.retired for node in recording.warm_nodes)
    assert all(node.parent < place for place, node in enumerate(recording.warm_nodes))
    assert recording.before and recording.history
    planted: list[int] = []
    replay(recording, watch=lambda engine: planted.append(engine.tree.nodes))
    assert planted == [0], "it is planted after the watcher was told"


def test_planting_keeps_both_tiers_accounts_at_any_size(path: Path, run: Run) -> None:
    recording = read(path, Reading(stretch(run, 0.5, 0.8), warm_calls=0))
    for device, host in ((700, 3000), (1500, 0), (1500, 900), (9000, 9000)):
        setting = Setting(device_tokens=device, host_tokens=host)
        engine = Engine(setting.engine_on(recording), setting.knobs_on(recording))
        plant(engine, recording)
        check_engine(engine)
        assert engine.tree.nodes > 10 and (engine.tree.host.used > 0) == (host > 0)
        outcome = replay(recording, Setting(device_tokens=device, host_tokens=host))
        assert 0 <= outcome.figures["hit"] <= 1 and outcome.complete


def test_the_newest_calls_alone(query: Query, run: Run) -> None:
    recording = read_log(query, Reading(most_calls=50, warm_calls=0))
    assert 45 <= recording.calls <= 60  # calls that one message tells of stay together
    assert max(call.ended for w in recording.workflows for call in w.calls) == run.table("call")["ended_s"].max()


def test_the_last_seconds(query: Query) -> None:
    span = find_span(query, Window(last_s=5.0))
    assert (span.end - span.start).total_seconds() <= 5.0
    assert len(read_calls(query, span)) < len(read_calls(query, find_span(query, Window())))


def test_a_window_begins_behind_everything_that_was_before(run: Run, tmp_path: Path) -> None:
    """A server tells of a call's end in a later turn than of its last batch."""
    with duckdb.connect(str(run.store(tmp_path / "run.duckdb"))) as db:
        seq, start = db.execute("SELECT seq, t FROM raw.call ORDER BY seq LIMIT 1 OFFSET 40").fetchall()[0]
        db.execute("DELETE FROM raw.batch WHERE seq = ?", [seq])
    with opened(tmp_path / "run.duckdb") as query:
        span = find_span(query, Window(start=start))
        assert span.after == seq
        assert len(read_calls(query, replace(span, after=span.first - 1))) - len(read_calls(query, span)) == 41


def test_what_the_server_is_may_be_told_later(run: Run, tmp_path: Path) -> None:
    """To a collector that came late it is told again within a minute, which may be behind the window."""
    with duckdb.connect(str(run.store(tmp_path / "late.duckdb"))) as db:
        db.execute("UPDATE raw.setting SET seq = (SELECT max(seq) FROM raw.call)")
    recording = read(tmp_path / "late.duckdb", Reading(stretch(run, 0.2, 0.5), warm_calls=0, start="cold"))
    assert recording.engine == replace(make_engine(SHAPE, {}).settings, seed=recording.engine.seed)
    assert (recording.knobs["score_snapshot_s"], recording.changes) == (1.0, ())
    assert not any("did not record" in loss or "knobs" in loss for loss in recording.losses)


def test_a_server_that_says_what_it_is_before_it_serves_is_read_from_there(run: Run, tmp_path: Path) -> None:
    """A server tells once it is up; names and steps come with the first call, messages later."""
    with duckdb.connect(str(run.store(tmp_path / "up.duckdb"))) as db:
        for table in ("call", "batch", "name", "page", "workflow", "prediction", "node_score", "eviction", "prefetch", "occupancy"):
            db.execute(f"UPDATE raw.{table} SET seq = seq + 5 WHERE seq > 0")
    with opened(tmp_path / "up.duckdb") as query:
        assert find_span(query, Window()).whole
        recording = read_log(query)
    assert recording.engine.max_running == 8
    assert recording.losses == ()


# ---- what is missing ---------------------------------------------------------------------------------------------------------


def test_lost_messages_and_pages_are_said_and_too_many_refused(run: Run, tmp_path: Path) -> None:
    """A collector that came late: a third of the run is not there."""
    late = Run(run.payloads[len(run.payloads) // 3 :])
    recording = read(late.store(tmp_path / "late.duckdb"))
    assert recording.unknown_calls > 0
    assert any("pages of" in loss for loss in recording.losses)
    gone = replace(recording, unknown_calls=recording.calls)
    with pytest.raises(Refused, match=r"100% of the calls .* start the collector before the server"):
        fidelity(gone)


def test_what_is_replayed_otherwise_is_refused(query: Query) -> None:
    recording = read_log(query)
    with pytest.raises(Refused, match=r"0\.\d+ replayed where 0\.050 was measured, more than 0\.05 apart; what is missing: nothing"):
        fidelity(replace(recording, measured={"hit": 0.05}))
    with pytest.raises(Refused, match="expected at least 20"):
        fidelity(replace(recording, workflows=recording.workflows[:1]))


def test_a_log_of_schema_1_takes_what_it_lacks_from_its_rows(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    run.store(path)
    with duckdb.connect(str(path)) as db:
        for view in ("call", "setting", "knob", "workflow"):
            db.execute(f"DROP VIEW {view}")
        db.execute("DROP TABLE raw.setting")
        added = {"call": ("arrived_s", "ended_s", "max_tokens", "place"), "workflow": ("at_s",), "knob": ("at_s", "arrivals")}
        for table, columns in added.items():
            for column in columns:
                db.execute(f"ALTER TABLE raw.{table} DROP COLUMN {column}")
        db.execute("UPDATE meta SET schema_version = 1, digest = 'of another schema'")
    recording = read(path, Reading(given={"host_tokens": "3000"}))
    assert (recording.engine.page_size, recording.engine.host_tokens) == (16, 3000)
    assert abs(recording.engine.device_tokens - 1500) < 16
    assert any("did not record what the server is" in loss for loss in recording.losses)
    assert any("exact to a scheduler step" in loss for loss in recording.losses)
    assert any("knobs" in loss for loss in recording.losses)
    told = fidelity(replace(recording, knobs={**recording.knobs, "policy": "he"}), tolerance=1.0, jitters=0)
    assert abs(told.residuals["hit"].error) < 0.1


@pytest.mark.parametrize(("window", "message"), [
    (Window(server="nobody"), "server = 'nobody': the log has embedded"),
    (Window(epoch=77), "no calls in this window"),
    (Window(start=START + timedelta(days=1)), "no calls in this window"),
])
def test_windows_without_calls_are_refused(query: Query, window: Window, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_log(query, Reading(window))


@pytest.mark.parametrize("window", [
    {"last_s": 0.0}, {"last_s": math.nan}, {"last_s": -5.0}, {"last_s": math.inf}, {"last_s": 5.0, "start": START},
    {"start": START, "end": START},
])
def test_windows_that_cannot_be_are_refused(window: Mapping[str, Any]) -> None:
    with pytest.raises(UsageError):
        Window(**window)


@pytest.mark.parametrize("reading", [{"most_calls": 0}, {"warm_calls": -1}])
def test_readings_that_cannot_be_are_refused(reading: Mapping[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected"):
        Reading(**reading)


def test_several_servers_have_to_be_told_apart(tmp_path: Path) -> None:
    store = Store(tmp_path / "two.duckdb")
    for server in ("one", "two"):
        store.commit([decode(payload) for payload in record(10, server=server, epoch=1)])
    store.close()
    with pytest.raises(UsageError, match="the log has one, two; name one of them"):
        read(tmp_path / "two.duckdb")
    assert read(tmp_path / "two.duckdb", Reading(Window(server="two"))).name == "two"


def test_an_empty_log_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / "empty.duckdb").close()
    with pytest.raises(UsageError, match="no calls in this window"):
        read(tmp_path / "empty.duckdb")


def test_the_page_size_is_found_by_the_numbers_of_pages(query: Query) -> None:
    calls = read_calls(query, find_span(query, Window()))
    assert page_size_of(calls) == 16
    assert page_size_of([call._replace(pages=call.pages + 1) for call in calls]) is None
    assert page_size_of([]) is None


# ---- knobs, closes, aborts ---------------------------------------------------------------------------------------------------


def test_turned_knobs_are_known_at_any_start(tmp_path: Path) -> None:
    made = make_engine({**SHAPE, "max_running": 4}, {"policy": "lru"})
    sink = report(made)
    plan = random_plan(5, 16, flows=30, turns=(("gamma", (0.25, 0.5)), ("policy", ("he", "lae"))))
    Actor(made, plan).run()
    run = Run(sink.payloads)
    path = run.store(tmp_path / "turned.duckdb")
    recording = read(path)
    assert recording.knobs["policy"] == "lru" and len(recording.changes) == 6
    assert [change.at_s for change in recording.changes] == sorted(run.table("knob")["at_s"].tolist())
    later = read(path, Reading(stretch(run, 0.5, 1.0), warm_calls=0))
    values = dict(recording.knobs)
    for change in recording.changes[: len(recording.changes) - len(later.changes)]:
        values[change.name] = change.value
    assert later.knobs == values and 0 < len(later.changes) < 6
    assert any(call.aborted for w in recording.workflows for call in w.calls)
    assert any(not math.isnan(w.closed_s) for w in recording.workflows)


def test_an_asked_knob_stays_whatever_was_turned(tmp_path: Path) -> None:
    made = make_engine({**SHAPE, "max_running": 4}, {"policy": "lru"})
    sink = report(made)
    Actor(made, random_plan(6, 16, flows=30, turns=(("policy", ("he", "lae")),))).run()
    recording = read(Run(sink.payloads).store(tmp_path / "turned.duckdb"))
    engines: list[Any] = []
    replay(recording, Setting(policy="kvflow"), watch=engines.append)
    replay(recording, watch=engines.append)
    assert [engine.knobs["policy"] for engine in engines] == ["kvflow", recording.changes[-1].value]


# ---- forecasts ---------------------------------------------------------------------------------------------------------------


def test_the_recorded_setting_is_forecast_as_it_was(query: Query) -> None:
    recording = read_log(query)
    known = fidelity(recording, jitters=2)
    said = forecast(recording, known, Setting())
    for name, value in recording.measured.items():
        each = said.estimates[name]
        assert each.value == pytest.approx(value) == pytest.approx(each.present) and each.low <= value <= each.high
        assert not each.certain or each.low == each.high
    assert known.spread["ttft_mean"] > 0


def test_an_interval_grows_with_residual_chance_and_change(query: Query) -> None:
    recording: Recording = read_log(query)
    known = fidelity(recording, jitters=0)
    other = replay(recording, Setting(policy="lru"))
    plain = estimates(known, other)["hit"]
    more = estimates(replace(known, spread={"hit": 0.01}), other)["hit"]
    assert more.high - more.low > plain.high - plain.low
    assert plain.high - plain.low >= 0.05 * abs(plain.change)
    odd = estimates(replace(known, spread={"hit": math.nan}), other)["hit"]
    assert (odd.low, odd.high) == (plain.low, plain.high)


def test_a_stopped_replay_tells_no_chance(query: Query) -> None:
    known = fidelity(read_log(query), stop=lambda: True)
    assert not known.present.complete and known.spread == {}


def test_a_source_in_pieces_reads_the_same(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_log(query)
    monkeypatch.setattr("pbkv.whatif.logwindow.PIECE", 97)
    asked: list[int] = []

    def counted(sql: str, params: Mapping[str, Any]) -> pa.Table:
        asked.append(1)
        return query(sql, params)

    assert digest(read_log(counted)) == digest(whole) and len(asked) > 20
