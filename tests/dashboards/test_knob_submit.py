"""Edits against a real control server, and the form around them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards.feed import Feed
from dashboards.knobs import card, form, recorded
from dashboards.knobs.edit import Edit, note, submit
from dashboards.knobs.form import Loaded
from dashboards.knobs.watch import Control, Watch
from dashboards.site import Site
from pbkv.control.client import ControlClient
from tests.dashboards.factory import desk, full
from tests.dashboards.waiting import wait_for
from tests.support.control import ControlServer
from tests.support.ports import free_port


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer() as running:
        yield running


def site_of(url: str | None, *, readonly: bool = False, token: str | None = None, page_token: str | None = None) -> Site:
    def never() -> Any:
        raise AssertionError("not read here")

    watch = Watch(lambda: url, lambda: True, token=token, interval_s=0.05, timeout_s=2)
    return Site("test", Feed(never, lambda reader, window: full()), watch, readonly, desk(), page_token)


@pytest.fixture
def site(server: ControlServer) -> Iterator[Site]:
    running = site_of(server.url)
    running.watch.start()
    wait_for(lambda: running.watch.state.version is not None)
    yield running
    running.watch.stop()


def edit(site: Site, version: int | None = None, reason: str = "", **changes: Any) -> Edit:
    loaded = Loaded.of(site.watch.state)
    return Edit(loaded if version is None else Loaded(version, loaded.values), changes, "alice", reason)


def test_an_edit_takes_effect_at_a_step(site: Site, server: ControlServer):
    outcome = submit(site, edit(site, gamma=0.6, reason="less decay"), None)
    assert outcome.applied
    assert outcome.text == f"Version 2 took effect at step {server.backend.set.step:,}: gamma 0.8 → 0.6"
    assert outcome.loaded == Loaded(2, {**Loaded.of(site.watch.state).values, "gamma": 0.6})
    assert server.backend.set.values["gamma"] == 0.6
    assert [(h["actor"], h["reason"]) for h in server.backend.log] == [("alice", "less decay")]


def test_a_stale_edit_says_who_changed_what_and_reloads(site: Site, server: ControlServer):
    mine = edit(site, version=1, gamma=0.6)  # loaded before bob's change, whatever the page's watch sees of it since
    ControlClient(server.url, actor="bob").set({"gamma": 0.3, "k": 5}, reason="quick test")
    outcome = submit(site, mine, None)
    assert not outcome.applied
    assert "bob set gamma 0.8 → 0.3 (version 2" in outcome.text
    assert "bob set k 3 → 5" in outcome.text
    assert "your change was gamma 0.8 → 0.6" in outcome.text
    assert outcome.loaded is not None
    assert (outcome.loaded.version, outcome.loaded.values["gamma"]) == (2, 0.3)
    assert server.backend.set.values["gamma"] == 0.3


def test_the_engine_has_the_last_word(site: Site):
    outcome = submit(site, edit(site, gamma=7.0), None)
    assert not outcome.applied
    assert outcome.loaded is None
    assert "knob gamma = 7.0" in outcome.text


def test_a_readonly_page_sends_nothing(site: Site, server: ControlServer):
    blocked = Site(site.source, site.feed, site.watch, True, desk())
    assert submit(blocked, edit(site, gamma=0.6), None).text == "This page is read-only."
    assert server.backend.set.version == 1


@pytest.mark.parametrize("typed", [None, "", "wrong", "geheim ", 3])
def test_off_loopback_an_edit_needs_the_token(site: Site, server: ControlServer, typed: object):
    guarded = Site(site.source, site.feed, site.watch, False, desk(), "geheim")
    assert "token" in submit(guarded, edit(site, gamma=0.6), typed).text
    assert server.backend.set.version == 1
    assert submit(guarded, edit(site, gamma=0.6), "geheim").applied


def test_the_engines_token_is_shown_to_it():
    with ControlServer(token="s3") as server:
        for token, fine in (("s3", True), ("no", False)):
            site = site_of(server.url, token=token)
            site.watch.start()
            wait_for(lambda s=site: s.watch.state.version is not None or s.watch.state.error)
            site.watch.stop()
            assert (site.watch.state.version == 1) is fine
            assert fine or "token" in str(site.watch.state.error)


def test_an_engine_that_is_away_is_named_and_seen_again():
    port = free_port()
    site = site_of(f"http://127.0.0.1:{port}")
    site.watch.start()
    try:
        wait_for(lambda: site.watch.state.error)
        assert f"http://127.0.0.1:{port} does not answer" in str(site.watch.state.error)
        with ControlServer(port=port):
            wait_for(lambda: site.watch.state.version == 1)
            assert site.watch.state.error is None
        wait_for(lambda: site.watch.state.error)
        assert site.watch.state.version == 1
        assert "Not applied" in submit(site, edit(site, gamma=0.6), None).text
    finally:
        site.watch.stop()


def test_without_an_address_nothing_is_sent():
    outcome = submit(site_of(None), Edit(Loaded(1, {}), {"gamma": 0.5}, "a", ""), None)
    assert "--server URL" in outcome.text


def test_an_answer_that_is_not_ours_is_explained():
    from fastapi import FastAPI

    with ControlServer() as server:
        other = FastAPI()

        @other.get("/pbkv/knobs")
        def knobs() -> dict[str, int]:
            return {"version": 1}

        server.app.router.routes[:] = other.router.routes
        site = site_of(server.url)
        site.watch.start()
        wait_for(lambda: site.watch.state.error)
        site.watch.stop()
        assert "not understood" in str(site.watch.state.error)


@pytest.mark.parametrize(
    ("control", "recorded_source", "readonly", "part"),
    [
        (Control(), True, False, "A recording"),
        (Control(), False, False, "--server URL"),
        (Control("http://x", error="x is gone."), False, False, "Editing is off"),
        (Control("http://x", 1, 1), False, True, "--readonly"),
        (Control("http://x", 1, 1), False, False, ""),
    ],
)
def test_note(control: Control, recorded_source: bool, readonly: bool, part: str):
    text = note(control, recorded=recorded_source, readonly=readonly)
    assert part in text
    assert bool(text) == bool(part)


def test_the_form_reloads_only_when_nobody_edits(site: Site, server: ControlServer):
    loaded = Loaded.of(site.watch.state)
    on_page = form.controls(site.watch.state.knobs, loaded.values)
    assert not form.may_reload(site.watch.state, loaded, on_page)
    ControlClient(server.url, actor="bob").set({"k": 5})
    wait_for(lambda: site.watch.state.version == 2)
    assert form.may_reload(site.watch.state, loaded, on_page)
    assert not form.may_reload(site.watch.state, loaded, {**on_page, "gamma": 0.1})
    text, now, may = form.summary(site.watch.state, loaded, {**on_page, "gamma": 0.1})
    assert text.startswith("Staged on version 1: gamma 0.8 → 0.1. The engine is at version 2 by now")
    assert may
    assert now.changes == {"gamma": 0.1}


def test_summary_of_an_untouched_and_of_a_wrong_form(site: Site):
    loaded = Loaded.of(site.watch.state)
    on_page = form.controls(site.watch.state.knobs, loaded.values)
    assert form.summary(site.watch.state, loaded, on_page)[::2] == ("Nothing staged", False)
    assert form.summary(site.watch.state, loaded, {**on_page, "k": 99})[::2] == ("Not applicable: k", False)
    assert form.summary(site.watch.state, None, on_page)[::2] == ("Nothing staged", False)


@pytest.mark.parametrize("data", [None, 3, {}, {"version": "1", "values": {}}, {"version": 1}, {"version": 1, "values": []}])
def test_what_a_page_sends_back_is_checked(data: object):
    assert Loaded.read(data) is None


def test_loaded_survives_the_page():
    loaded = Loaded(3, {"gamma": 0.5})
    assert Loaded.read(json.loads(json.dumps(loaded.data()))) == loaded


def test_a_readonly_form_has_no_controls(site: Site):
    knobs = site.watch.state.knobs
    editable = json.dumps([r.to_plotly_json() for r in card.rows(knobs, readonly=False)], default=lambda c: c.to_plotly_json())
    shown = json.dumps([r.to_plotly_json() for r in card.rows(knobs, readonly=True)], default=lambda c: c.to_plotly_json())
    assert editable.count("knob-input") > len(knobs)
    assert "knob-input" not in shown
    assert "64 MiB" in shown


def test_a_recording_shows_the_last_values():
    text = json.dumps([r.to_plotly_json() for r in recorded.rows(full().knob_changes)], default=lambda c: c.to_plotly_json())
    assert text.count('"knob-name"') == 2
    assert "version 3, since step 3,000, by alice" in text
