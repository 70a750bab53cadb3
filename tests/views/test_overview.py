"""Numbers worked out on paper against the views over tiny databases."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from collector.views.models import Evictions, Loss, Overview
from pbkv.events.schema import Namespace
from tests.support.hand import T0, Hand

Load = Callable[..., Overview]


def test_a_store_without_a_stream_is_empty(overview: Load) -> None:
    o = overview(lambda h: None)
    assert (o.status, o.server, o.servers, o.occupancy, o.workflows) == ("empty", None, (), None, ())
    assert (o.hit_rate.calls, o.hit_rate.device, o.hit_rate.ttft_p50_ms) == (0, None, None)
    assert (o.accuracy, o.evictions, o.knob_changes, o.loss) == ((), (), (), Loss(0, 0))
    assert (o.windows.count, o.windows.p50_ms, o.prefetches.issued, o.prefetches.skipped) == (0, None, 0, ())


def test_a_stream_without_events_has_a_server_and_zeros(overview: Load) -> None:
    o = overview(lambda h: h.stream("gpu3"))
    assert o.server is not None and o.server.name == "gpu3"
    assert (o.status, o.hit_rate.calls, o.windows.total_ms) == ("recorded", 0, 0.0)


def test_server_is_named_by_its_stream(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream("gpu0", epoch=7)
        h.name(Namespace.ENGINE, "sglang 0.5.23")
        h.name(Namespace.MODEL, "tiny")
        h.name(Namespace.CONTROL_URL, "http://127.0.0.1:30000")
        h.row("batch", 5.0, mode="decode")

    server = overview(fill).server
    assert server is not None
    assert (server.name, server.epoch, server.engine, server.model) == ("gpu0", 7, "sglang 0.5.23", "tiny")
    assert server.control_url == "http://127.0.0.1:30000"
    assert (server.last_event, server.age_s, server.step) == (T0 + timedelta(seconds=5), 0.0, 40)


def test_hit_rate_weighs_calls_by_their_prompt(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.call(1, "w", "a", 0, prompt_tokens=100, device_hit_tokens=50, host_hit_tokens=10, ttft_ms=10)
        h.call(2, "w", "b", 1, prompt_tokens=300, device_hit_tokens=30, host_hit_tokens=90, ttft_ms=30)
        h.call(3, None, None, 0, prompt_tokens=600, ttft_ms=20)
        h.call(4, "w", "c", 2, status="aborted", ttft_ms=0)

    rate = overview(fill).hit_rate
    assert (rate.calls, rate.prompt_tokens, rate.unattributed_calls) == (4, 1000, 1)
    assert (rate.device, rate.host) == (0.08, 0.1)
    # An aborted call has no first token: it counts as a call, not as a time.
    assert (rate.ttft_p50_ms, rate.ttft_p95_ms) == (20.0, 29.0)


def test_calls_without_a_prompt_have_no_hit_rate(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.call(1, "w", "a", 0)

    o = overview(fill)
    assert (o.hit_rate.calls, o.hit_rate.device, o.hit_series) == (1, None, ())
    assert o.workflows[0].hit_rate is None


def test_the_window_ends_at_the_last_event_of_a_file_and_leaves_older_rows_out(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.call(0, "old", "a", 0, prompt_tokens=100)
        h.row("eviction", 0, tokens=5, from_tier="device", decision="tie")
        h.call(100, "new", "a", 0, prompt_tokens=100, device_hit_tokens=100)

    o = overview(fill, 60.0)
    assert (o.now, o.window_s) == (T0 + timedelta(seconds=100), 60.0)
    assert (o.hit_rate.calls, o.hit_rate.device, o.evictions) == (1, 1.0, ())


def test_hit_series_has_one_point_per_second_of_a_minute(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.call(10.1, "w", "a", 0, prompt_tokens=100, device_hit_tokens=100)
        h.call(10.9, "w", "a", 1, prompt_tokens=100, host_hit_tokens=50)
        h.call(12.0, "w", "a", 2, prompt_tokens=100)

    points = overview(fill).hit_series
    assert [(p.t - T0).total_seconds() for p in points] == [10.0, 12.0]
    assert [(p.calls, p.device, p.host) for p in points] == [(2, 0.5, 0.25), (1, 0.0, 0.0)]


def test_occupancy_is_the_newest_sample_and_a_series_of_last_samples(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        for at, free in ((1.0, 10), (1.5, 11), (2.0, 12)):
            h.row("occupancy", at, device_free=free, host_retired=3, workflows=2)

    o = overview(fill)
    assert o.occupancy is not None
    assert (o.occupancy.device_free, o.occupancy.host_retired, o.occupancy.workflows) == (12, 3, 2)
    assert [s.device_free for s in o.occupancy_series] == [11, 12]


def test_evictions_are_grouped_by_decision_and_tiers(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.row("eviction", 1, tokens=10, from_tier="device", to_tier="host", decision="scored")
        h.row("eviction", 2, tokens=20, from_tier="device", to_tier="host", decision="scored")
        h.row("eviction", 3, tokens=100, from_tier="host", to_tier="none", decision="retired")

    assert overview(fill).evictions == (
        Evictions("retired", "host", "none", 1, 100), Evictions("scored", "device", "host", 2, 30),
    )


def test_prefetches_count_decisions_outcomes_and_skips(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        for n, result in enumerate(["issued", "issued", "issued"], 1):
            h.row("prefetch", n, prefetch=n, phase="decision", result=result, tokens=16, bytes=1000)
        h.row("prefetch", 4, prefetch=1, phase="completion", result="completed", tokens=16, bytes=1000)
        h.row("prefetch", 5, prefetch=1, phase="outcome", result="used", tokens=16)
        h.row("prefetch", 6, prefetch=2, phase="outcome", result="evicted_unused", tokens=16)
        h.row("prefetch", 7, prefetch=3, phase="outcome", result="late", tokens=16)
        h.row("prefetch", 8, phase="decision", result="skip_budget")
        h.row("prefetch", 9, phase="decision", result="skip_budget")
        h.row("prefetch", 9, phase="decision", result="skip_no_space")

    p = overview(fill).prefetches
    assert (p.issued, p.issued_tokens, p.issued_bytes, p.completed) == (3, 48, 3000, 1)
    assert (p.used, p.evicted_unused, p.late) == (1, 1, 1)
    assert p.skipped == (("budget", 2), ("no_space", 1))


def test_windows_add_up(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        for at, us in ((1, 1000), (2, 2000), (3, 6000)):
            h.row("pcie_window", at, length_us=us, capacity_bytes=us * 10, h2d_bytes=us, d2h_bytes=5)

    w = overview(fill).windows
    assert (w.count, w.total_ms, w.p50_ms) == (3, 9.0, 2.0)
    assert (w.capacity_bytes, w.h2d_bytes, w.d2h_bytes) == (90_000, 9000, 15)


def test_knob_changes_come_newest_first_with_the_step_they_took_effect(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.row("knob", 1, version=2, name="gamma", old="0.8", new="0.7", actor="ana", source="manual", reason="try")
        h.row("knob", 2, version=3, name="gamma", old="0.7", new="0.8", actor="engine", source="expiry", reason=None)

    changes = overview(fill).knob_changes
    assert [(c.version, c.name, c.old, c.new, c.actor, c.source, c.reason) for c in changes] == [
        (3, "gamma", "0.7", "0.8", "engine", "expiry", ""), (2, "gamma", "0.8", "0.7", "ana", "manual", "try"),
    ]
    assert changes[0].step > changes[1].step > 0


def test_loss_is_that_of_the_stream_shown(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream("b")
        h.lost(1, 100)
        h.stream("a")
        h.row("batch", 5, mode="decode")
        h.lost(3, 5)
        h.lost(8, 8)

    assert overview(fill).loss == Loss(2, 4)


def test_the_server_with_the_newest_event_is_shown_unless_one_is_named(tmp_path: object, overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream("a", epoch=1)
        h.call(50, "wa", "x", 0, prompt_tokens=10)
        h.stream("b", epoch=1)
        h.call(90, "wb", "x", 0, prompt_tokens=20)

    o = overview(fill)
    assert o.server is not None and o.server.name == "b"
    assert [s.name for s in o.servers] == ["a", "b"]
    assert [w.workflow for w in o.workflows] == ["wb"]


def test_a_named_server_ends_its_window_at_its_own_last_event(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream("a")
        h.call(5, "wa", "x", 0, prompt_tokens=10)
        h.stream("b")
        h.call(900, "wb", "x", 0, prompt_tokens=20)

    o = overview(fill, 60.0, "a")
    assert o.server is not None and o.server.name == "a"
    assert (o.hit_rate.prompt_tokens, o.now) == (10, T0 + timedelta(seconds=5))


def test_of_a_restarted_server_the_newest_epoch_is_shown(overview: Load) -> None:
    def fill(h: Hand) -> None:
        h.stream("a", epoch=1)
        h.call(1, "before", "x", 0)
        h.stream("a", epoch=2)
        h.call(2, "after", "x", 0)

    o = overview(fill)
    assert [(s.name, s.epoch) for s in o.servers] == [("a", 2)]
    assert [w.workflow for w in o.workflows] == ["after"]


def test_a_window_must_not_depend_on_bucket_widths() -> None:
    from collector.views.scope import bucket_s

    assert [bucket_s(w) for w in (1, 60, 61, 300, 3600, 86_400)] == [1, 1, 2, 5, 60, 1800]
    assert bucket_s(1e9) == 3600


@pytest.mark.parametrize("window_s", [0.5, 60.0, 86_400.0 * 365])
def test_any_window_is_answered(overview: Load, window_s: float) -> None:
    def fill(h: Hand) -> None:
        h.stream()
        h.call(1, "w", "a", 0, prompt_tokens=1)

    assert overview(fill, window_s).hit_rate.calls == 1
