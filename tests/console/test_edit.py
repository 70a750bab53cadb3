"""Changing knobs from the terminal app, against a real control server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import Input, Static

from console.top.app import TopApp
from console.top.edit import EditKnob
from pbkv.control.client import ControlClient
from tests.console.test_app import knobs, make, run, running, shown, until
from tests.support.control import ControlServer
from tests.support.stream import fill


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("edit") / "fill.duckdb"
    fill(path, seconds=5, seed=4)
    return str(path)


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer() as server:
        yield server


def error(app: TopApp) -> str:
    """The dialog's sentence."""
    return str(app.screen.query_one("#edit-error", Static).content)


async def open_dialog(pilot, app: TopApp, *keys: str) -> EditKnob:
    await knobs(pilot, app)
    await pilot.press(*keys)
    await until(pilot, lambda: isinstance(app.screen, EditKnob), "the dialog")
    await pilot.pause()
    assert isinstance(app.screen, EditKnob)
    return app.screen


async def closed(pilot, app: TopApp) -> None:
    await until(pilot, lambda: not isinstance(app.screen, EditKnob), "the dialog's end")


def test_a_change_is_applied_and_shown_with_its_version_and_step(db: str, server: ControlServer) -> None:
    async def test() -> None:
        app = make(db, server.url)
        async with running(app) as pilot:
            await open_dialog(pilot, app, "e")
            text = shown(app)
            assert "confidence decay" in text and "a number from 0 to 1" in text and "version 1" in text
            await pilot.press(*"0.65", "tab", *"try", "enter")
            await closed(pilot, app)
            assert server.backend.set["gamma"] == 0.65
            assert (server.backend.log[-1]["actor"], server.backend.log[-1]["reason"]) == ("ana", "try")
            step = server.backend.set.step
            await until(pilot, lambda: app.control.states is not None and app.control.states.version == 2, "version 2")
            await until(pilot, lambda: f"v2 @{step}" in shown(app), "the step on the screen")
            assert "0.65" in shown(app)

    run(test)


def test_enter_on_a_row_edits_that_knob(db: str, server: ControlServer) -> None:
    async def test() -> None:
        app = make(db, server.url)
        async with running(app) as pilot:
            dialog = await open_dialog(pilot, app, "7", "down", "enter")
            assert dialog.knob == "k"
            await pilot.press("5", "enter")
            await closed(pilot, app)
            assert server.backend.set["k"] == 5

    run(test)


def test_arrows_in_the_dialog_walk_the_knobs(db: str, server: ControlServer) -> None:
    async def test() -> None:
        app = make(db, server.url)
        async with running(app) as pilot:
            dialog = await open_dialog(pilot, app, "e", "down", "down")
            assert dialog.knob == "prefetch_budget"
            assert dialog.query_one("#edit-value", Input).value == str(64 << 20)
            await pilot.press("0", "enter")
            await closed(pilot, app)
            assert server.backend.set["prefetch_budget"] == 0

    run(test)


@pytest.mark.parametrize(("keys", "typed", "words"), [
    (["e"], "1.5", "knob gamma = 1.5: expected a number from 0 to 1"), (["e"], "x", "knob gamma = 'x'"),
    (["e", "down"], "0", "from 1 to 8"),
    (["e", "down", "down", "down"], "fifo", "one of lru, lae"),
])
def test_a_bad_value_is_refused_while_it_is_typed_and_never_sent(
    db: str, server: ControlServer, keys: list[str], typed: str, words: str,
) -> None:
    async def test() -> None:
        app = make(db, server.url)
        async with running(app) as pilot:
            await open_dialog(pilot, app, *keys)
            await pilot.press(*typed)
            await until(pilot, lambda: words in error(app), words)
            await pilot.press("enter")
            await pilot.pause()
            assert isinstance(app.screen, EditKnob) and server.backend.set.version == 1

    run(test)


def test_escape_cancels(db: str, server: ControlServer) -> None:
    async def test() -> None:
        app = make(db, server.url)
        async with running(app) as pilot:
            await open_dialog(pilot, app, "e")
            await pilot.press(*"0.1", "escape")
            await closed(pilot, app)
            assert server.backend.set.version == 1

    run(test)


def test_of_two_operators_the_second_is_told_and_may_go_on(db: str, server: ControlServer) -> None:
    async def test() -> None:
        app = make(db, server.url, actor="ana")
        async with running(app) as pilot:
            await open_dialog(pilot, app, "e")
            ControlClient(server.url, actor="ben").set({"gamma": 0.5})
            await pilot.press(*"0.6", "enter")
            await until(pilot, lambda: "version 2 was set by ben: gamma 0.8 -> 0.5" in error(app), "the stale sentence")
            assert server.backend.set["gamma"] == 0.5
            await pilot.pause()
            assert "by ben" in shown(app)
            await pilot.press("enter")
            await closed(pilot, app)
            assert (server.backend.set["gamma"], server.backend.set.version) == (0.6, 3)

    run(test)


def test_two_apps_at_once(db: str, server: ControlServer) -> None:
    async def test() -> None:
        first, second = make(db, server.url, actor="ana"), make(db, server.url, actor="ben")
        async with running(first) as one, running(second) as two:
            await open_dialog(one, first, "e")
            await open_dialog(two, second, "e")
            await one.press(*"0.3", "enter")
            await closed(one, first)
            await two.press(*"0.4", "enter")
            await until(two, lambda: "was set by ana" in error(second), "the stale sentence")
            await two.press("escape")
            await closed(two, second)
            assert server.backend.set["gamma"] == 0.3

    run(test)


def test_a_server_that_dies_under_the_dialog_is_said(db: str) -> None:
    async def test() -> None:
        with ControlServer() as server:
            app = make(db, server.url)
            async with running(app) as pilot:
                await open_dialog(pilot, app, "e")
                server.stop()
                await pilot.press(*"0.6", "enter")
                await until(pilot, lambda: "does not answer" in error(app), "the sentence")
                await pilot.press("escape")
                await closed(pilot, app)

    run(test)


def test_readonly_refuses_and_says_how_to_change_that(db: str, server: ControlServer) -> None:
    async def test() -> None:
        app = make(db, server.url, readonly=True)
        async with running(app) as pilot:
            await knobs(pilot, app)
            await pilot.press("e")
            await pilot.press("7", "enter")
            await pilot.pause()
            assert not isinstance(app.screen, EditKnob)
            assert any("--readonly" in n.message for n in app._notifications)
            assert "readonly" in shown(app)

    run(test)


def test_a_reason_with_brackets_is_text(db: str, server: ControlServer) -> None:
    async def test() -> None:
        app = make(db, server.url)
        async with running(app) as pilot:
            await open_dialog(pilot, app, "e")
            app.screen.query_one("#edit-reason", Input).value = "[red]x[/] [/nope]"
            await pilot.press(*"0.2", "enter")
            await closed(pilot, app)
            assert server.backend.log[-1]["reason"] == "[red]x[/] [/nope]"

    run(test)
