"""The What-if screen driven by keys, with a real process that runs the grids."""

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Input, Static

from console.top.app import TopApp
from console.top.tune import Tune
from console.top.whatif.cells import CellTable
from console.top.whatif.form import Form
from console.top.whatif.kept import KeptTable
from console.top.whatif.pane import VIEWS, Pane
from console.top.whatif.screen import WhatIfScreen
from pbkv.whatif.asked import DEFAULTS
from pbkv.whatif.front import what_if
from pbkv.whatif.question import Load
from pbkv.whatif.results import Results
from tests.console.test_app import knobs, make, run, running, shown, until
from tests.support import forecasts
from tests.support.control import ControlServer
from tests.support.forecasts import Generated
from tests.support.stream import fill

LOAD = Generated(workflows=8)
#: What stands on the screen, to the letter.
SCREENS = Path(__file__).parent / "screens"
GRID = {"policy": "lru,he", "gamma": "0.5,1", "k": "2,3", "last": "10m", "best": "hit"}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("whatif") / "fill.duckdb"
    fill(path, seconds=5, seed=4)
    return str(path)


def app_with(db: str, tmp_path: Path, form: dict[str, str], *, url: str | None = None, load: Load = LOAD) -> TopApp:
    app = make(db, url, desk=what_if(db, load, tmp_path))
    app.form.clear()
    app.form.update(form)
    return app


async def opened(pilot, app: TopApp) -> WhatIfScreen:
    await pilot.press("i")
    await until(pilot, lambda: isinstance(app.screen, WhatIfScreen), "the screen")
    await pilot.pause()
    assert isinstance(app.screen, WhatIfScreen)
    return app.screen


async def ran(pilot, screen: WhatIfScreen) -> None:
    await pilot.press("ctrl+r")
    await until(pilot, lambda: screen.answer is not None and screen.answer.done, "the grid's end")
    await pilot.pause()


def progress(app: TopApp) -> str:
    return str(app.screen.query_one("#grid-progress", Static).content)


def caption(app: TopApp) -> str:
    return str(app.screen.query_one("#grid-caption", Static).content)


def test_a_grid_from_the_form_to_the_knob_editor(db: str, tmp_path: Path) -> None:
    async def test() -> None:
        with ControlServer() as server:
            app = app_with(db, tmp_path, {**GRID, "device_tokens": "x0.5,x1"}, url=server.url)
            async with running(app) as pilot:
                await knobs(pilot, app)
                screen = await opened(pilot, app)
                await ran(pilot, screen)
                table = screen.query_one(CellTable)
                assert table.row_count == 10 and "10 of 10 settings" in progress(app) and "best hit rate: ★ " in progress(app)
                pane = screen.query_one(Pane)
                assert pane.choice is not None and pane.choice.sure
                # The first row is lru at half the pool: the pool is no knob, the policy is staged.
                await pilot.press("a")
                await until(pilot, lambda: isinstance(app.screen, Tune), "the Tune screen")
                assert isinstance(app.screen, Tune) and app.screen.stage.changes == {"policy": "lru"}
                assert any("not a knob of a running server: device_tokens 30000" in n.message for n in app._notifications)
                assert server.backend.set.version == 1

    run(test)


def test_table_curve_and_map_of_a_result(db: str, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, tmp_path, GRID)
        async with running(app) as pilot:
            screen = await opened(pilot, app)
            await ran(pilot, screen)
            pane = screen.query_one(Pane)
            assert "Settings as asked" in caption(app)
            await pilot.press("s")
            assert "by hit rate" in caption(app)
            best = pane.choice
            assert best is not None and screen.query_one(CellTable).row_key_at_cursor() == str(best.place)
            await pilot.press("c")
            assert caption(app).startswith("hit rate over gamma") and "━ lru" in caption(app) and "he k 3" in caption(app)
            await pilot.press("x")
            assert caption(app).startswith("hit rate over k") and "he gamma 0.5" in caption(app)
            await pilot.press("f")
            assert caption(app).startswith("TTFT p95 over k")
            await pilot.press("m", "x")
            assert caption(app).startswith("TTFT p95 over k and gamma   he")
            await pilot.pause()
            assert "★" in shown(app) and "0.5" in shown(app)
            await pilot.press("t")
            assert screen.query_one(CellTable).display and not screen.query_one("#grid-map").display

    run(test)


def test_the_constraint_names_the_best_or_says_that_there_is_none(db: str, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, tmp_path, {**GRID, "under": "ttft_p95<1h", "best": "moved_bytes"})
        async with running(app) as pilot:
            screen = await opened(pilot, app)
            screen.query_one("#field-under", Input).value = "ttft_p95<60m"
            await pilot.pause()
            await ran(pilot, screen)
            assert "best bytes moved under ttft_p95<60m: ★ " in progress(app)
            screen.query_one("#field-under", Input).value = "ttft_p95<1us"
            await pilot.pause()
            await ran(pilot, screen)
            assert "under ttft_p95<1us: no setting keeps that" in progress(app)
            assert "↵" not in progress(app)

    run(test)


BAD = [
    ("gamma", "0.5:2:0.1", "gamma '0.5:2:0.1': expected numbers from 0 to 1"),
    ("k", "0", "k '0': expected whole numbers from 1 to 8"),
    ("device_tokens", "1:1000000:1", "expected at most 2,000"),
    ("under", "ttft<1", "under 'ttft<1': expected FIGURE<VALUE"),
    ("best", "speed", "best 'speed': expected one of"),
    ("last", "3 days", "last '3 days': expected a time such as 90s, 10m or 2h, up to 24h"),
]


def test_what_the_form_refuses(db: str, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, tmp_path, GRID, load=forecasts.die)
        async with running(app) as pilot:
            screen = await opened(pilot, app)
            for field, text, sentence in BAD:
                screen.query_one(Form).fill({**GRID, field: text})
                await pilot.pause()
                await pilot.press("enter")
                await pilot.pause()
                assert sentence in progress(app), (field, progress(app))
            assert screen.answer is None and app.desk is not None and app.desk.grids._process is None

    run(test)


@pytest.mark.parametrize(("load", "sentence"), [
    (forecasts.refuse, "the log of the last 600 s has no calls"), (forecasts.refused, "12 messages of the window were lost"),
    (forecasts.die, "the forecast process ended"),
])
def test_why_a_grid_ended_without_a_result(db: str, tmp_path: Path, load: Load, sentence: str) -> None:
    async def test() -> None:
        app = app_with(db, tmp_path, GRID, load=load)
        async with running(app) as pilot:
            screen = await opened(pilot, app)
            await ran(pilot, screen)
            assert sentence in progress(app)
            await pilot.press("a")
            assert "no setting is chosen" in progress(app)

    run(test)


def test_a_grid_that_is_stopped_keeps_what_was_found(db: str, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, tmp_path, {**GRID, "policy": "he", "gamma": "0:1:0.01"}, load=Generated(workflows=40))
        async with running(app) as pilot:
            screen = await opened(pilot, app)
            await pilot.press("ctrl+r")
            await until(pilot, lambda: screen.answer is not None and len(screen.answer.found) >= 1, "a first cell")
            assert screen.running
            await pilot.press("escape")
            await until(pilot, lambda: not screen.running, "the stop")
            assert "stopped, kept as" in progress(app) and isinstance(app.screen, WhatIfScreen)
            ((_, kept),) = Results(tmp_path / "whatif" / "results").newest()
            assert kept.stopped and 1 <= len(kept.cells) < kept.asked
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, WhatIfScreen), "the end")

    run(test)


def test_kept_results_are_listed_and_opened_with_their_form(db: str, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, tmp_path, GRID)
        async with running(app) as pilot:
            screen = await opened(pilot, app)
            assert "esc leaves the form" in progress(app)
            await ran(pilot, screen)
            screen.query_one("#field-gamma", Input).value = ""
            screen.query_one("#field-policy", Input).value = "lru,lae"
            await pilot.pause()
            await ran(pilot, screen)
            assert screen.query_one(CellTable).row_count == 2
            await pilot.press("k")
            table = screen.query_one(KeptTable)
            await until(pilot, lambda: table.row_count == 2, "two results")
            await pilot.press("down", "enter")
            await until(pilot, lambda: app.form.get("gamma") == "0.5,1", "the form")
            assert app.form["policy"] == "lru,he" and "kept as " in progress(app) and "best hit rate: ★" in progress(app)
            assert screen.query_one(CellTable).display and screen.query_one(CellTable).row_count == 5
            for path in (tmp_path / "whatif" / "results").iterdir():
                path.write_text("damaged")
            await pilot.press("k")
            await until(pilot, lambda: table.row_count == 0, "none that can be read")
            assert "none yet" in caption(app)

    run(test)


def test_the_form_and_the_newest_result_are_there_when_the_screen_is_opened_again(db: str, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, tmp_path, GRID)
        async with running(app) as pilot:
            screen = await opened(pilot, app)
            await ran(pilot, screen)
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, WhatIfScreen), "the end")
            again = await opened(pilot, app)
            assert again.query_one(CellTable).row_count == 5 and "kept as" in progress(app)
            assert again.query_one("#field-gamma", Input).value == "0.5,1"

    run(test)


def test_keys_typed_into_the_form_are_text(db: str, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, tmp_path, {})
        async with running(app) as pilot:
            screen = await opened(pilot, app)
            await pilot.press(*"tcmkfxsa")
            assert app.form["policy"] == "tcmkfxsa" and screen.query_one(Pane).at == "table"
            await pilot.press("escape")
            await pilot.press("c")
            assert screen.query_one(Pane).at == "curve" and "no curve" in caption(app)
            await pilot.press("m")
            assert "no map" in caption(app)

    run(test)


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
def test_every_view_fits_the_screen(db: str, tmp_path: Path, size: tuple[int, int], kept_result: Callable[[Path], str]) -> None:
    kept_result(tmp_path)

    async def test() -> None:
        app = app_with(db, tmp_path, dict(DEFAULTS))
        async with running(app, size) as pilot:
            screen = await opened(pilot, app)
            await pilot.press("escape")
            for view in VIEWS:
                await pilot.press(view[0])
                await pilot.pause()
                text = "\n".join(line.rstrip() for line in shown(app).splitlines())
                assert text + "\n" == (SCREENS / f"{view}-{size[0]}.txt").read_text(), text
                assert screen.query_one(Pane)._parts()[view].size.height >= 10

    run(test)


def test_the_form_as_a_whole() -> None:
    form = Form({**DEFAULTS, "under": " ttft_p95<800ms ", "host_order": ""})
    asked = form.asked()
    assert asked.axes == {"policy": "lru,lae,he,first_use", "gamma": "0.6:1:0.2", "k": "1,3,5"}
    assert (asked.span_s, asked.best, asked.under) == (600.0, "hit", "ttft_p95<800ms") and asked.limits[0].value == 0.8
    assert Form({"last": "1.5h"}).asked().span_s == 5400
