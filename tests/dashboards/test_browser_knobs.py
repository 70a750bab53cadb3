"""Knobs from the browser to a real control server and back."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from pbkv.control.client import ControlClient
from pbkv.knobs import KNOBS
from tests.dashboards.conftest import Open
from tests.dashboards.processes import WebServer
from tests.support.control import ControlServer

pytestmark = pytest.mark.browser


@pytest.fixture
def control() -> Iterator[ControlServer]:
    with ControlServer() as server:
        yield server


@pytest.fixture
def web(recording: Path, control: ControlServer) -> Iterator[WebServer]:
    with WebServer(str(recording), "--server", control.url) as server:
        yield server


def knob(page: Page, name: str) -> str:
    return f'input[id*=\'"knob":"{name}","type":"knob-input"\'], [id*=\'"knob":"{name}","type":"knob-input"\'] input'


def stage(page: Page, name: str, value: str) -> None:
    page.locator(knob(page, name)).fill(value)


def now(page: Page, name: str):
    return page.locator(f'[id=\'{{"knob":"{name}","type":"knob-now"}}\']')


def choose(page: Page, knob: str, choice: str) -> None:
    """Pick from a list of choices."""
    page.get_by_role("textbox", name=f"{knob}: new value").click()
    page.get_by_role("option", name=choice, exact=True).click()


def test_an_edit_end_to_end(open_page: Open, web: WebServer, control: ControlServer):
    watched = open_page(web.url)
    page = watched.page
    expect(page.locator("#knob-form .knob-row")).to_have_count(len(KNOBS))
    expect(page.locator("#knob-version")).to_have_text("version 1 · since start")
    expect(page.locator("#knob-apply")).to_be_disabled()
    stage(page, "gamma", "0.6")
    stage(page, "prefetch_budget", "32 MiB")
    choose(page, "policy", "lru")
    page.locator("#knob-actor").fill("alice")
    page.locator("#knob-reason").fill("less decay")
    expect(page.locator("#knob-staged")).to_have_text(
        "Staged on version 1: gamma 0.8 → 0.6, prefetch_budget 64 MiB → 32 MiB, policy he → lru"
    )
    page.locator("#knob-apply").click()
    expect(page.locator("#knob-result")).to_have_text(re.compile(r"^Version 2 took effect at step \d+: gamma 0.8 → 0.6"))
    expect(page.locator("#knob-version")).to_have_text(re.compile(rf"^version 2 · since step {control.backend.set.step:,}$"))
    expect(now(page, "gamma")).to_have_text("0.6")
    expect(now(page, "prefetch_budget")).to_have_text("32 MiB")
    expect(page.locator("#knob-staged")).to_have_text("Nothing staged")
    expect(page.locator("#knob-apply")).to_be_disabled()
    assert control.backend.set.values | {"gamma": 0.6, "prefetch_budget": 32 << 20, "policy": "lru"} == control.backend.set.values
    assert {(h["actor"], h["reason"]) for h in control.backend.log} == {("alice", "less decay")}
    assert watched.errors == []
    assert watched.hosts == {f"127.0.0.1:{web.port}"}


def test_a_bad_value_is_never_sent(open_page: Open, web: WebServer, control: ControlServer):
    page = open_page(web.url).page
    stage(page, "gamma", "1.5")
    expect(page.locator(".knob-error", has_text="expected a number from 0 to 1")).to_be_visible()
    expect(page.locator("#knob-apply")).to_be_disabled()
    page.locator("#knob-discard").click()
    expect(page.locator(knob(page, "gamma"))).to_have_value("0.8")
    expect(page.locator(".knob-error", has_text="expected")).to_have_count(0)
    assert control.backend.set.version == 1


def test_a_second_operators_stale_edit(open_page: Open, web: WebServer, control: ControlServer):
    page = open_page(web.url).page
    stage(page, "gamma", "0.6")
    expect(page.locator("#knob-staged")).to_contain_text("gamma 0.8 → 0.6")
    ControlClient(control.url, actor="bob").set({"gamma": 0.3}, reason="quick test")
    expect(page.locator("#knob-staged")).to_contain_text("The engine is at version 2 by now")
    expect(now(page, "gamma")).to_have_text("0.3")
    expect(page.locator(knob(page, "gamma"))).to_have_value("0.6")
    page.locator("#knob-apply").click()
    expect(page.locator("#knob-result")).to_contain_text("bob set gamma 0.8 → 0.3 (version 2")
    expect(page.locator("#knob-result")).to_contain_text("your change was gamma 0.8 → 0.6")
    expect(page.locator(knob(page, "gamma"))).to_have_value("0.3")
    assert control.backend.set.values["gamma"] == 0.3
    stage(page, "gamma", "0.6")
    expect(page.locator("#knob-apply")).to_be_enabled()
    page.locator("#knob-apply").click()
    expect(page.locator("#knob-result")).to_contain_text("Version 3 took effect at step")


def test_two_operators_see_each_others_changes(open_page: Open, web: WebServer):
    alice, bob = open_page(web.url).page, open_page(web.url).page
    expect(bob.locator(knob(bob, "k"))).to_have_value("3")
    stage(alice, "k", "5")
    expect(alice.locator("#knob-apply")).to_be_enabled()
    alice.locator("#knob-apply").click()
    expect(bob.locator("#knob-version")).to_contain_text("version 2")
    expect(bob.locator(knob(bob, "k"))).to_have_value("5")


def test_an_engine_that_goes_away_is_named(open_page: Open, web: WebServer, control: ControlServer):
    page = open_page(web.url).page
    stage(page, "gamma", "0.6")
    expect(page.locator("#knob-apply")).to_be_enabled()
    control.stop()
    expect(page.locator("#knob-note")).to_contain_text(f"{control.url} does not answer")
    expect(page.locator("#knob-note")).to_contain_text("Editing is off")
    expect(page.locator("#knob-apply")).to_be_disabled()
    expect(page.locator(knob(page, "gamma"))).to_have_value("0.6")
    with ControlServer(port=control.port):
        expect(page.locator("#knob-note")).to_have_text("")
        expect(page.locator("#knob-apply")).to_be_enabled()


def test_a_readonly_page_says_so(open_page: Open, recording: Path, control: ControlServer):
    with WebServer(str(recording), "--server", control.url, "--readonly") as web:
        page = open_page(web.url).page
        expect(page.locator("#knob-note")).to_contain_text("--readonly")
        expect(page.locator("#knob-form .knob-row")).to_have_count(len(KNOBS))
        expect(now(page, "gamma")).to_have_text("0.8")
        assert page.locator("#knob-apply").count() == 0
        assert page.locator("#knob-form input").count() == 0
        ControlClient(control.url, actor="bob").set({"gamma": 0.3})
        expect(now(page, "gamma")).to_have_text("0.3")


def test_off_loopback_the_token_is_asked_for(open_page: Open, recording: Path, control: ControlServer, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("geheim\n")
    with WebServer(str(recording), "--server", control.url, "--host", "0.0.0.0", "--token-file", str(token)) as web:
        page = open_page(web.url).page
        stage(page, "gamma", "0.6")
        expect(page.locator("#knob-apply")).to_be_enabled()
        page.locator("#knob-apply").click()
        expect(page.locator("#knob-result")).to_contain_text("The token is not this page's")
        assert control.backend.set.version == 1
        page.locator("input#knob-token, #knob-token input").fill("geheim")
        page.locator("#knob-apply").click()
        expect(page.locator("#knob-result")).to_contain_text("Version 2 took effect")
