"""The first line, the badge and the banner."""

import time
from dataclasses import replace

import pytest

from collector.views.models import Loss, Overview
from dashboards import verdict
from dashboards.feed import Snapshot
from tests.dashboards.factory import empty, full


def shot(overview: Overview | None, **more) -> Snapshot:
    return Snapshot(1, overview, **more)


def stale(age_s: float = 12) -> Overview:
    server = full().server
    assert server is not None
    return full(status="stale", server=replace(server, age_s=age_s))


def test_line_of_a_serving_engine():
    assert verdict.line(full()) == "Serving · hit rate 71 % (device 58 %, host 13 %) · predictor right 300 of 400 · 0 messages lost"


@pytest.mark.parametrize(
    ("overview", "start"),
    [
        (None, "Waiting for the first data"),
        (empty(), "Waiting for a server"),
        (full(status="recorded"), "Recording ·"),
        (stale(), "Silent for 12 s ·"),
    ],
)
def test_line_starts_with_the_state(overview: Overview | None, start: str):
    assert verdict.line(overview).startswith(start)


def test_line_of_an_engine_without_work():
    quiet = full(hit_rate=empty().hit_rate, accuracy=(), occupancy=None)
    assert verdict.line(quiet) == "Idle · no calls ended · nothing predicted yet · 0 messages lost"


def test_line_counts_losses():
    assert verdict.line(full(loss=Loss(1, 1))).endswith("1 message lost")


@pytest.mark.parametrize(
    ("snapshot", "text", "tone"),
    [
        (None, "connecting", "quiet"),
        (shot(full()), "live", "good"),
        (shot(stale(40)), "stale · 40 s", "warn"),
        (shot(empty()), "waiting for a server", "quiet"),
        (shot(full(status="recorded")), "recorded", "quiet"),
        (shot(full(), error="gone", unreachable=True), "collector unreachable", "bad"),
        (shot(None, error="refused"), "cannot read", "bad"),
    ],
)
def test_badge(snapshot: Snapshot | None, text: str, tone: str):
    assert verdict.badge(snapshot) == verdict.Badge(text, tone)


def test_no_banner_when_all_is_well():
    assert verdict.banner(None, "s") is None
    assert verdict.banner(shot(full()), "s") is None
    assert verdict.banner(shot(full(status="recorded")), "s") is None


def test_an_unreachable_collector_keeps_the_data_and_says_what_to_start():
    banner = verdict.banner(
        shot(full(), error="collector grpc://x: does not answer", unreachable=True, failing_since=time.monotonic() - 7), "grpc://x"
    )
    assert banner is not None
    assert (banner.tone, banner.title) == ("bad", "Collector unreachable for 7 s")
    assert "The last data read stays" in banner.text
    assert "pbkv collect" in banner.text
    first = verdict.banner(shot(None, error="gone", unreachable=True), "grpc://x")
    assert first is not None
    assert "Nothing has been read yet" in first.text


def test_a_refusal_is_not_called_unreachable():
    banner = verdict.banner(shot(full(), error="the token is refused"), "grpc://x")
    assert banner is not None
    assert "unreachable" not in banner.title
    assert "the token is refused" in banner.text


@pytest.mark.parametrize(
    ("overview", "part"),
    [
        (empty(), "pbkv serve"),
        (stale(), "stopped"),
        (full(loss=Loss(2, 30)), "low by"),
        (full(hit_rate=replace(full().hit_rate, unattributed_calls=400)), "custom_params.pbkv"),
    ],
)
def test_banner_says_what_to_do(overview: Overview, part: str):
    banner = verdict.banner(shot(overview), "s")
    assert banner is not None
    assert part in banner.text


def test_silence_comes_before_loss():
    banner = verdict.banner(shot(replace(stale(), loss=Loss(1, 1))), "s")
    assert banner is not None
    assert banner.title == "No events for 12 s"
