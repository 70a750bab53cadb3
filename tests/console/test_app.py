"""The terminal app driven by keys, over a real file or collector and a real control server."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from collector.client import open as open_source
from collector.reader import Reader
from console.top.app import TopApp
from console.top.edit import EditKnob
from console.top.feed import Feed
from console.top.header import Banner, HeaderLine
from console.top.help import Help
from console.top.panels.table import LiveTable
from console.top.panels.workflows import WorkflowsPanel
from pbkv.control.client import ControlClient
from pbkv.errors import Unreachable
from pbkv.whatif.front import WhatIf
from tests.support.control import ControlServer
from tests.support.loops import run_in_loop
from tests.support.ports import free_port
from tests.support.stream import fill

DEADLINE_S = 60.0
TITLES = ("1 Cache", "2 Hit rate", "3 Predictor", "4 Evictions", "5 Prefetch", "6 Live workflows", "7 Knobs")
FOCUS = ("cache", "hits", "accuracy", "evictions", "prefetch", "workflow-table", "knob-table")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("top") / "fill.duckdb"
    fill(path, seconds=30, seed=3)
    return str(path)


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer() as server:
        yield server


def make(
    source: str, url: str | None = None, *, open_reader: Callable[[], Reader] | None = None, readonly: bool = False, actor: str = "ana",
    desk: WhatIf | None = None,
) -> TopApp:
    open_reader = open_reader or (lambda: open_source(source))
    feed = Feed(open_reader, lambda u: ControlClient(u, actor=actor, timeout_s=3), control_url=url, interval_s=0.25)
    return TopApp(feed, readonly=readonly, desk=desk)


@asynccontextmanager
async def running(app: TopApp, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Pilot[None]]:
    """The app until the block is left; a fault that the app survived still fails the test."""
    async with app.run_test(size=size) as pilot:
        yield pilot
    assert app.faults == 0


async def until(pilot: Pilot[None], condition: Callable[[], Any], what: str) -> None:
    """Let the app run until `condition` holds."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"never came: {what}"
        await pilot.pause(0.02)


async def data(pilot: Pilot[None], app: TopApp) -> None:
    await until(pilot, lambda: app.snapshot.overview is not None, "data")
    await until(pilot, lambda: app.query_one("#workflow-table", LiveTable).row_count > 0, "workflows")


async def knobs(pilot: Pilot[None], app: TopApp) -> None:
    await until(pilot, lambda: app.control.states is not None, "knobs")
    await until(pilot, lambda: app.query_one("#knob-table", LiveTable).row_count > 0, "knob rows")


def shown(app: TopApp) -> str:
    """Text of the whole screen."""
    width, height = app.size
    lines = app.screen._compositor.render_strips()
    return "\n".join(strip.text[:width] for strip in lines[:height])


run = run_in_loop


def test_every_panel_shows_its_numbers(db: str, server: ControlServer) -> None:
    async def test() -> None:
        app = make(db, server.url)
        async with running(app) as pilot:
            await data(pilot, app)
            await knobs(pilot, app)
            await pilot.pause()
            text = shown(app)
            for word in ("RECORDED", "synthetic-0", *TITLES):
                assert word in text
            o = app.snapshot.overview
            assert o is not None and o.hit_rate.device is not None
            assert f"{100 * o.hit_rate.device:.0f}%" in text
            for word in ("gamma", "64.0 MiB", "v1 @0"):
                assert word in text, text

    run(test)


def test_quit(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app) as pilot:
            await pilot.press("q")
            await until(pilot, lambda: not app.is_running, "the end")

    run(test)


def test_pause_stops_reading_and_says_so(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app) as pilot:
            await data(pilot, app)
            await pilot.press("space")
            assert app.feed.paused and app.query_one(HeaderLine).paused
            await pilot.pause()
            assert "PAUSED" in shown(app)
            await pilot.press("space")
            before = app.snapshot
            await until(pilot, lambda: app.snapshot is not before, "fresh data")
            assert "PAUSED" not in shown(app)

    run(test)


def test_pace_and_window_have_bounds(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app) as pilot:
            await pilot.press("minus", "minus")
            assert app.feed.interval_s == 1.0
            await pilot.press(*["minus"] * 9)
            assert app.feed.interval_s == 10.0
            await pilot.press(*["plus"] * 9)
            assert app.feed.interval_s == 0.25
            windows: list[float] = []
            for _ in range(5):
                await pilot.press("w")
                windows.append(app.feed.window_s)
            assert windows == [300.0, 900.0, 3600.0, 30.0, 60.0]

    run(test)


def test_digits_focus_panels(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app) as pilot:
            await data(pilot, app)
            for digit, ids in enumerate(FOCUS, 1):
                await pilot.press(str(digit))
                assert app.focused is not None and app.focused.id == ids
            await pilot.press("escape")
            assert app.focused is None

    run(test)


@pytest.mark.parametrize("readonly", [False, True])
def test_help_lists_the_keys_that_work_now(db: str, readonly: bool) -> None:
    async def test() -> None:
        app = make(db, readonly=readonly)
        async with running(app, (100, 40)) as pilot:
            await pilot.press("question_mark")
            await until(pilot, lambda: isinstance(app.screen, Help), "help")
            await pilot.pause()
            text = shown(app)
            assert "regular expression; ! inverts" in text and "stop or go on reading" in text
            assert ("readonly: knobs cannot be changed here" in text) == readonly
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, Help), "help closed")

    run(test)


def test_filter_narrows_inverts_survives_half_typed_patterns_and_is_cleared(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app) as pilot:
            await data(pilot, app)
            await pilot.press("space")
            await pilot.pause()
            table = app.query_one("#workflow-table", LiveTable)
            o = app.snapshot.overview
            assert o is not None
            name = o.workflows[0].workflow
            await pilot.press("slash")
            await pilot.press(*name)
            await until(pilot, lambda: table.row_count == 1, "one row")
            await pilot.press("home", "!")
            await until(pilot, lambda: table.row_count == len(o.workflows) - 1, "all but one")
            app.query_one("#filter", Input).value = "("
            await pilot.pause()
            assert app.query_one(WorkflowsPanel).pattern == f"!{name}"
            await pilot.press("enter")
            await pilot.pause()
            assert any("not a regular expression" in n.message for n in app._notifications)
            await pilot.press("escape")
            await until(pilot, lambda: table.row_count == len(o.workflows), "all")
            assert not app.query_one("#filter", Input).has_class("open")

    run(test)


def test_keys_typed_into_the_filter_are_text(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app) as pilot:
            await data(pilot, app)
            await pilot.press("slash")
            await pilot.press("q", "space", "s", "question_mark", "1")
            assert app.query_one("#filter", Input).value == "q s?1"
            assert app.is_running and not app.feed.paused and app.query_one(WorkflowsPanel).order == "idle"

    run(test)


def test_a_filter_that_matches_nothing_says_so(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app) as pilot:
            await data(pilot, app)
            app.query_one(WorkflowsPanel).filter("zzz")
            await pilot.pause()
            assert "no workflow matches 'zzz'" in shown(app)

    run(test)


def order(app: TopApp) -> list[str]:
    table = app.query_one("#workflow-table", LiveTable)
    return [str(table.coordinate_to_cell_key((row, 0)).row_key.value) for row in range(table.row_count)]  # type: ignore[arg-type]


def test_sort_by_key_and_by_header(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app) as pilot:
            await data(pilot, app)
            await pilot.press("space")
            await pilot.pause()
            by_idle = order(app)
            await pilot.press("s")
            await pilot.pause()
            assert app.query_one(WorkflowsPanel).order == "workflow"
            assert order(app) == sorted(by_idle) != by_idle
            table = app.query_one("#workflow-table", LiveTable)
            key = next(k for k in table.columns if k.value == "step")
            table.post_message(DataTable.HeaderSelected(table, key, 1, table.columns[key].label))
            await until(pilot, lambda: app.query_one(WorkflowsPanel).order == "step", "order by step")
            o = app.snapshot.overview
            assert o is not None
            steps = {w.workflow: w.step for w in o.workflows}
            await pilot.pause()
            assert [steps[w] for w in order(app)] == sorted(steps.values(), reverse=True)

    run(test)


def test_cells_are_updated_and_rows_are_kept(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app) as pilot:
            await data(pilot, app)
            table = app.query_one("#workflow-table", LiveTable)
            rows = set(table.rows)
            cleared: list[bool] = []
            clear = table.clear
            table.clear = lambda columns=False: cleared.append(columns) or clear(columns)  # type: ignore[method-assign]
            before = app.snapshot
            await until(pilot, lambda: app.snapshot is not before, "fresh data")
            await pilot.pause()
            assert set(table.rows) == rows and not cleared

    run(test)


def test_a_large_terminal_gets_charts_and_a_small_one_does_not(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app, (160, 48)) as pilot:
            await data(pilot, app)
            assert app.query_one("#hit-chart").display
            await pilot.resize_terminal(80, 24)
            await until(pilot, lambda: not app.query_one("#hit-chart").display, "no chart")
            await pilot.resize_terminal(160, 48)
            await until(pilot, lambda: app.query_one("#hit-chart").display, "a chart")

    run(test)


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (60, 60), (300, 20), (1, 1)])
def test_no_size_of_terminal_breaks_it(db: str, size: tuple[int, int]) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app, size) as pilot:
            await until(pilot, lambda: app.snapshot.overview is not None, "data")
            await pilot.pause()

    run(test)


def test_an_empty_source_says_what_to_check(tmp_path: Path) -> None:
    from tests.support.hand import Hand

    with Hand(tmp_path / "empty.duckdb"):
        pass

    async def test() -> None:
        app = make(str(tmp_path / "empty.duckdb"))
        async with running(app) as pilot:
            await until(pilot, lambda: app.snapshot.overview is not None, "data")
            await pilot.pause()
            text = shown(app)
            assert "EMPTY" in text and "no events yet" in text and "--connect" in text

    run(test)


def test_a_source_that_goes_away_is_said_kept_and_recovered_from(db: str) -> None:
    async def test() -> None:
        gone = False

        class Flaky:
            source, live = db, False

            def __init__(self) -> None:
                self._inner = open_source(db)

            def sql(self, *args: Any, **kwargs: Any) -> Any:
                if gone:
                    raise Unreachable("collector does not answer; start it")
                return self._inner.sql(*args, **kwargs)

            def close(self) -> None:
                self._inner.close()

        app = make(db, open_reader=Flaky)  # type: ignore[arg-type]
        async with running(app) as pilot:
            await data(pilot, app)
            gone = True
            await until(pilot, lambda: app.snapshot.error, "the error")
            await pilot.pause()
            text = shown(app)
            assert "✗ LOST" in text and "retrying: collector does not answer" in text and "1 Cache" in text
            assert app.query_one(Banner).display and app.has_class("-dim")
            assert app.query_one("#workflow-table", LiveTable).row_count > 0
            gone = False
            await until(pilot, lambda: app.snapshot.error is None, "recovery")
            await pilot.pause()
            assert not app.query_one(Banner).display and not app.has_class("-dim")

    run(test)


def test_a_source_that_is_not_there_yet_is_waited_for(db: str) -> None:
    async def test() -> None:
        there = False

        def open_reader() -> Reader:
            if not there:
                raise Unreachable("collector grpc://127.0.0.1:1 does not answer")
            return open_source(db)

        app = make(db, open_reader=open_reader)
        async with running(app) as pilot:
            await until(pilot, lambda: app.snapshot.error, "the error")
            await pilot.pause()
            assert "NO DATA" in shown(app) and "does not answer" in shown(app)
            there = True
            await data(pilot, app)

    run(test)


def test_a_defect_in_reading_is_shown_and_survived(db: str) -> None:
    async def test() -> None:
        def broken() -> Reader:
            raise ZeroDivisionError("oops")

        app = make(db, open_reader=broken)
        async with running(app) as pilot:
            await until(pilot, lambda: app.snapshot.error, "the error")
            await pilot.pause()
            assert "ZeroDivisionError: oops" in shown(app) and app.is_running

    run(test)


def test_a_defect_in_the_app_is_logged_and_survived(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with app.run_test(size=(80, 24)) as pilot:
            await data(pilot, app)
            app.call_later(lambda: 1 / 0)
            await until(pilot, lambda: app.faults == 1, "the fault")
            assert app.is_running
            before = app.snapshot
            await until(pilot, lambda: app.snapshot is not before, "fresh data after the fault")

    run(test)


def test_a_control_url_that_does_not_answer_is_said_in_the_knobs_panel(db: str) -> None:
    async def test() -> None:
        app = make(db, f"http://127.0.0.1:{free_port()}")
        async with running(app) as pilot:
            await data(pilot, app)
            await until(pilot, lambda: app.control.error, "the error")
            await pilot.pause()
            assert "control unreachable" in shown(app)
            await pilot.press("e")
            await pilot.pause()
            assert not isinstance(app.screen, EditKnob)
            assert any("knobs cannot be changed now" in n.message for n in app._notifications)

    run(test)


def test_a_control_server_that_comes_back_is_read_again(db: str) -> None:
    async def test() -> None:
        with ControlServer() as first:
            port = first.port
            app = make(db, first.url)
            async with running(app) as pilot:
                await knobs(pilot, app)
                first.stop()
                app.feed.wake()
                await until(pilot, lambda: app.control.error, "the error")
                assert app.control.states is not None
                with ControlServer(port=port):
                    app.feed.wake()
                    await until(pilot, lambda: app.control.error is None, "recovery")

    run(test)


def test_a_recording_names_no_server_to_change(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app) as pilot:
            await data(pilot, app)
            await pilot.pause()
            assert app.feed.control_url is None
            assert "recording" in shown(app)

    run(test)


def test_static_texts_are_plain(db: str) -> None:
    async def test() -> None:
        # A reason or a pattern with brackets is data, never markup.
        app = make(db)
        async with running(app) as pilot:
            await data(pilot, app)
            app.query_one(WorkflowsPanel).filter("[abc]")
            await pilot.pause()
            assert "/[abc]/" in shown(app)
            assert isinstance(app.query_one("#workflow-empty"), Static)

    run(test)
