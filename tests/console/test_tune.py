"""The Tune screen driven by keys, with a real forecast process and a real control server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import Input, Static

from console.top.app import TopApp
from console.top.staged import StagedKnobs
from console.top.tune import Tune
from pbkv.control.client import ControlClient
from pbkv.whatif.forecast import fidelity, forecast
from pbkv.whatif.front import what_if
from pbkv.whatif.question import Load
from pbkv.whatif.setting import Setting
from pbkv.whatif.units import shown as figure
from tests.console.test_app import knobs, make, run, running, shown, until
from tests.support import forecasts
from tests.support.control import ControlServer
from tests.support.forecasts import Generated
from tests.support.stream import fill

LOAD = Generated(workflows=8)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("tune") / "fill.duckdb"
    fill(path, seconds=5, seed=4)
    return str(path)


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer() as server:
        yield server


def app_with(db: str, url: str | None, tmp_path: Path, load: Load = LOAD, **more) -> TopApp:
    return make(db, url, desk=what_if(db, load, tmp_path), **more)


async def opened(pilot, app: TopApp) -> Tune:
    await pilot.press("t")
    await until(pilot, lambda: isinstance(app.screen, Tune), "the screen")
    assert isinstance(app.screen, Tune)
    return app.screen


async def answered(pilot, screen: Tune) -> None:
    await until(pilot, lambda: screen.answer.done, "an answer")
    await pilot.pause()


def said(app: TopApp, part: str) -> str:
    return str(app.screen.query_one(part, Static).content)


def line(app: TopApp, name: str) -> str:
    return next(text for text in shown(app).splitlines() if text.strip().startswith(name))


def test_a_knob_that_is_moved_is_forecast_beside_the_present(db: str, server: ControlServer, tmp_path: Path) -> None:
    recording = LOAD(600, 4000).recording
    known = fidelity(recording)
    lru = forecast(recording, known, Setting(policy="lru")).estimates["hit"]

    async def test() -> None:
        app = app_with(db, server.url, tmp_path)
        async with running(app) as pilot:
            await knobs(pilot, app)
            screen = await opened(pilot, app)
            await answered(pilot, screen)
            assert f"{recording.calls:,} calls" in said(app, "#tune-basis")
            assert figure(known.present.figures["hit"], "share") in line(app, "hit rate")
            assert "move a knob" in said(app, "#tune-state")
            screen.query_one(StagedKnobs).select("policy")
            while screen.stage.value("policy") != "lru":
                await pilot.press("right")
            await until(pilot, lambda: screen.answer.done and screen.answer.found, "a forecast")
            await pilot.pause()
            words = line(app, "hit rate")
            assert figure(lru.present, "share") in words and figure(lru.value, "share") in words
            assert ("worse" if lru.certain else "within its error") in words
            for name in ("TTFT p95", "bytes moved"):
                assert any(v in line(app, name) for v in ("better", "worse", "within its error", "no change"))
            assert "policy he → lru" in said(app, "#tune-staged") and "nine times in ten" in said(app, "#tune-state")
            await pilot.press("backspace")
            assert "nothing staged" in said(app, "#tune-staged") and server.backend.set.version == 1

    run(test)


def test_what_is_typed_is_forecast_with_every_key_and_the_newest_counts(db: str, server: ControlServer, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, server.url, tmp_path)
        async with running(app) as pilot:
            await knobs(pilot, app)
            screen = await opened(pilot, app)
            await pilot.press("down", "enter")
            box = screen.query_one("#tune-value", Input)
            await until(pilot, lambda: app.focused is box, "the line")
            knob = screen.query_one(StagedKnobs).selected
            assert knob == "k" or knob == "gamma"
            screen.query_one(StagedKnobs).select("gamma")
            await pilot.press("0", ".", "3", "5")
            assert screen.stage.changes["gamma"] == 0.35
            await pilot.press("x")
            await pilot.pause()
            assert "expected a number from 0 to 1" in said(app, "#tune-staged") and screen.stage.changes["gamma"] == 0.35
            await pilot.press("backspace", "escape")
            await until(pilot, lambda: app.focused is screen.query_one(StagedKnobs), "the list")
            assert isinstance(app.screen, Tune)
            await answered(pilot, screen)
            assert screen.answer.found[0].setting.gamma == 0.35
            await pilot.press("delete")
            assert not screen.stage.changes
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, Tune), "the end")
            assert server.backend.set.version == 1

    run(test)


def test_apply_sets_all_that_is_staged_at_once(db: str, server: ControlServer, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, server.url, tmp_path)
        async with running(app) as pilot:
            await knobs(pilot, app)
            screen = await opened(pilot, app)
            await pilot.press("a")
            assert "nothing is staged" in said(app, "#tune-staged")
            screen.stage.put("gamma", 0.5)
            screen.stage.put("k", 5)
            await pilot.press("a")
            await until(pilot, lambda: not isinstance(app.screen, Tune), "the end")
            assert server.backend.set["gamma"] == 0.5 and server.backend.set["k"] == 5 and server.backend.set.version == 2
            assert {h["reason"] for h in server.backend.log} == {"tuned by forecast"}
            assert any("version 2" in n.message for n in app._notifications)

    run(test)


def test_somebody_else_was_faster(db: str, server: ControlServer, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, server.url, tmp_path)
        app.feed.interval_s = 10
        async with running(app) as pilot:
            await knobs(pilot, app)
            screen = await opened(pilot, app)
            screen.stage.put("gamma", 0.5)
            ControlClient(server.url, actor="bob").set({"policy": "lru"}, if_version=1)
            await pilot.press("a")
            await until(pilot, lambda: "bob" in said(app, "#tune-staged"), "the refusal")
            assert "a applies on top of it" in said(app, "#tune-staged")
            assert screen.stage.version == 2 and screen.stage.base["policy"] == "lru" and screen.stage.changes == {"gamma": 0.5}
            await pilot.press("a")
            await until(pilot, lambda: not isinstance(app.screen, Tune), "the end")
            assert server.backend.set["gamma"] == 0.5 and server.backend.set["policy"] == "lru"

    run(test)


def test_readonly_forecasts_and_changes_nothing(db: str, server: ControlServer, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, server.url, tmp_path, readonly=True)
        async with running(app) as pilot:
            await knobs(pilot, app)
            screen = await opened(pilot, app)
            await pilot.press("right", "a")
            assert screen.stage.changes
            await until(pilot, lambda: screen.answer.done and screen.answer.found, "a forecast")
            screen.action_apply()
            assert "readonly" in said(app, "#tune-staged")
            assert isinstance(app.screen, Tune) and server.backend.set.version == 1

    run(test)


def test_a_recording_without_a_server_is_tuned_from_what_was_in_force(db: str, tmp_path: Path) -> None:
    async def test() -> None:
        app = app_with(db, None, tmp_path)
        async with running(app) as pilot:
            await until(pilot, lambda: app.snapshot.overview is not None, "data")
            screen = await opened(pilot, app)
            await answered(pilot, screen)
            assert screen.stage.version == 0 and screen.stage.base["policy"] == "he"
            await pilot.press("right")
            await until(pilot, lambda: screen.answer.done and screen.answer.found, "a forecast")
            await pilot.press("a")
            assert "no server has named its control URL" in said(app, "#tune-staged")

    run(test)


@pytest.mark.parametrize(("load", "sentence"), [
    (forecasts.refuse, "no forecast: the log of the last 600 s has no calls; record for longer, or take a wider window"),
    (forecasts.refused, "no forecast: 12 messages of the window were lost"),
    (forecasts.die, "no forecast: the forecast process ended before it had answered; ask again"),
])
def test_why_there_is_no_forecast(db: str, server: ControlServer, tmp_path: Path, load: Load, sentence: str) -> None:
    async def test() -> None:
        app = app_with(db, server.url, tmp_path, load)
        async with running(app) as pilot:
            await knobs(pilot, app)
            screen = await opened(pilot, app)
            await answered(pilot, screen)
            assert said(app, "#tune-state").startswith(sentence)
            await pilot.press("right")
            await answered(pilot, screen)
            assert said(app, "#tune-state").startswith(sentence) and screen.stage.changes

    run(test)


def test_without_forecasts_the_keys_are_dimmed(db: str) -> None:
    async def test() -> None:
        app = make(db)
        async with running(app) as pilot:
            await pilot.press("t", "i")
            await pilot.pause()
            assert len(app.screen_stack) == 1 and app.check_action("tune", ()) is None

    run(test)
