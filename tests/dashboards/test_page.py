"""What is sent to an open page: all of it once, then only what changed."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from collector.views.models import Overview
from dashboards.feed import Feed, Snapshot
from dashboards.knobs.spec import read_specs
from dashboards.knobs.watch import Control, Watch
from dashboards.page import Page, Prefs, as_of, in_force, server_line
from dashboards.site import Site
from pbkv.knobs import KnobSet
from tests.dashboards.factory import NOW, desk, empty, full

PREFS = Prefs(60.0, False, False, "dark", "UTC")


class Fixed(Feed):
    """A feed whose snapshot the test sets."""

    def __init__(self) -> None:
        super().__init__(lambda: None, lambda reader, window: full())  # type: ignore[arg-type, return-value]
        self.snapshots: dict[float, Snapshot] = {}

    def show(self, overview: Overview | None, window: float = 60.0, **more: Any) -> None:
        self.snapshots[window] = Snapshot(1, overview, **more)

    def want(self, window_s: float) -> Snapshot | None:
        return self.snapshots.get(window_s)


@pytest.fixture
def feed() -> Fixed:
    return Fixed()


@pytest.fixture
def site(feed: Fixed) -> Site:
    return Site("grpc://x", feed, Watch(lambda: None, lambda: False, token=None), False, desk())


Send = Callable[..., dict[str, dict[str, Any]]]


def send(page: Page, prefs: Prefs = PREFS) -> dict[str, dict[str, Any]]:
    return dict(page.changes(prefs))


def test_before_any_data_the_page_says_it_waits(site: Site):
    sent = send(Page(site))
    assert sent["badge"]["children"] == "connecting"
    assert sent["verdict"]["children"] == "Waiting for the first data"
    assert "device-graph" not in sent


def test_everything_once_then_only_the_beat(site: Site, feed: Fixed):
    feed.show(full())
    page = Page(site)
    first = send(page)
    assert {"verdict", "device-graph", "workflows-grid", "changes-grid", "tile-hit", "knob-live"} <= set(first)
    assert set(send(page)) == {"beat"}


def test_only_what_changed_is_sent(site: Site, feed: Fixed):
    feed.show(full())
    page = Page(site)
    send(page)
    feed.show(full(windows=replace(full().windows, count=460)))
    sent = send(page)
    assert "link-summary" in sent
    assert not {"device-graph", "workflows-grid", "link-graph"} & set(sent)


def test_a_theme_redraws_and_a_zone_moves_the_axis(site: Site, feed: Fixed):
    feed.show(full())
    page = Page(site)
    dark = send(page)["device-graph"]["figure"]
    light = send(page, replace(PREFS, scheme="light"))["device-graph"]["figure"]
    assert dark != light
    tokyo = send(page, replace(PREFS, scheme="light", zone="Asia/Tokyo"))
    assert tokyo["device-graph"]["figure"]["layout"]["xaxis"]["range"][1].startswith("2026-03-01T21:00")
    assert tokyo["as-of"]["children"] == "as of 21:00:00 JST"


def test_a_paused_page_keeps_its_moment_but_not_a_lie(site: Site, feed: Fixed):
    feed.show(full())
    page = Page(site)
    send(page)
    paused = replace(PREFS, paused=True)
    feed.show(full(now=NOW + timedelta(seconds=9), occupancy_series=()))
    assert set(send(page, paused)) == {"beat"}
    feed.show(full(), error="gone", unreachable=True, failing_since=0.0)
    sent = send(page, paused)
    assert sent["badge"]["children"] == "collector unreachable"
    assert "device-graph" not in sent
    assert "device-graph" in send(page, replace(paused, scheme="light"))


def test_a_paused_page_still_changes_its_window(site: Site, feed: Fixed):
    feed.show(full())
    feed.show(full(window_s=300.0), 300.0)
    page = Page(site)
    send(page)
    sent = send(page, replace(PREFS, paused=True, window_s=300.0))
    assert "device-graph" in sent


def test_resuming_shows_the_newest(site: Site, feed: Fixed):
    feed.show(full())
    page = Page(site)
    send(page)
    send(page, replace(PREFS, paused=True))
    feed.show(full(now=NOW + timedelta(seconds=9)))
    assert "device-graph" in send(page)


def test_a_hidden_tab_is_not_drawn_for(site: Site, feed: Fixed):
    feed.show(full())
    page = Page(site)
    assert "device-graph" not in send(page, replace(PREFS, hidden=True))
    assert "device-graph" in send(page)


def test_a_reconnected_page_keeps_its_form(site: Site, feed: Fixed):
    site.watch.state = Control("http://x", 1, 0, read_specs(KnobSet().describe()))
    shape = send(Page(site))["knob-shape"]["data"]
    assert shape[0] == "http://x"
    assert "knob-shape" not in send(Page(site, {("knob-shape", "data"): shape}))


def test_the_banner_compares_equal_between_refreshes(site: Site, feed: Fixed):
    feed.show(empty())
    page = Page(site)
    assert "No events yet" in str(send(page)["banner"])
    assert set(send(page)) == {"beat"}


def test_a_recording_shows_knobs_on_record(site: Site, feed: Fixed):
    feed.show(full(status="recorded"))
    sent = send(Page(site))
    assert sent["knob-version"]["children"] == "last values on record"
    assert len(sent["knob-past"]["children"]) == 2
    assert sent["knob-footer"]["style"] == {"display": "none"}


@pytest.mark.parametrize("data", [None, 3, "x", []])
def test_a_page_that_has_not_said_how_it_wants_to_look(data: object):
    assert Prefs.read(data) is None


@pytest.mark.parametrize(
    ("data", "seconds"), [({}, 300.0), ({"window": "1h"}, 3600.0), ({"window": ["1h"]}, 300.0), ({"window": "9z"}, 300.0)]
)
def test_prefs_trust_nothing(data: dict[str, Any], seconds: float):
    prefs = Prefs.read(data)
    assert prefs is not None
    assert prefs.window_s == seconds
    assert not prefs.paused


def test_header_lines():
    assert server_line(full()) == "gpu-7 · sglang 0.5.23 · llama-8b · step 12,345"
    server = full().server
    assert server is not None
    assert server_line(full(servers=(server, server, server))).endswith("2 more in this store")
    assert server_line(None) == ""
    assert as_of(full(status="recorded"), PREFS) == "as of 2026-03-01 12:00:00 UTC"
    assert in_force(Control("x", 4, 12_345)) == "version 4 · since step 12,345"
    assert in_force(Control("x", 1, 0)) == "version 1 · since start"
    assert in_force(Control()) == ""
