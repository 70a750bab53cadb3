"""Recordings that are kept: how many calls are taken, when they are read again, what is known already."""

import math
from dataclasses import replace

import pytest

from pbkv.errors import UsageError
from pbkv.whatif import held, replay
from pbkv.whatif.forecast import Refused
from pbkv.whatif.held import Held, Shelf
from pbkv.whatif.question import Loaded
from pbkv.whatif.setting import Setting
from tests.support.forecasts import Generated

RECORDING = Generated(workflows=8)(600, 10**6).recording
HIT = replay.replay(RECORDING).figures["hit"]


def never() -> bool:
    return False


class Source:
    """Hands out the newest workflows that fit, and remembers what it was asked for."""

    def __init__(self, *, live: bool = False) -> None:
        self.live, self.asked = live, []

    def __call__(self, span_s: float, most: int) -> Loaded:
        self.asked.append((span_s, most))
        taken, left = [], most
        for workflow in reversed(RECORDING.workflows):
            if (left := left - len(workflow.calls)) < 0:
                break
            taken.insert(0, workflow)
        recording = replace(RECORDING, workflows=tuple(taken))
        return Loaded(recording, span_s, "", RECORDING.calls - recording.calls, self.live)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shelf(source: Source) -> tuple[Shelf, Clock]:
    clock = Clock()
    return Shelf(source, clock), clock


def test_a_recording_is_read_once_and_a_live_one_again_when_it_is_old() -> None:
    for live, reads in ((False, 1), (True, 2)):
        source = Source(live=live)
        kept, clock = shelf(source)
        first = kept.take(60, whole=False, stop=never)
        clock.now = held.STALE_S
        assert kept.take(60, whole=False, stop=never) is first
        clock.now += 1
        kept.take(60, whole=False, stop=never)
        assert len(source.asked) == reads


def test_what_is_found_stays_while_the_content_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(live=True)
    kept, clock = shelf(source)
    first = kept.take(60, whole=False, stop=never)
    assert first is not None
    found = first.find(Setting(policy="lru"), never)
    monkeypatch.setattr(held, "forecast", None)
    monkeypatch.setattr(held, "digest", lambda recording: first.digest)
    clock.now = 1000
    kept.refresh(20, never)
    again = kept.take(60, whole=False, stop=never)
    assert len(source.asked) == 2 and again is first and again.read_at == 1000
    assert again.find(Setting(policy="lru"), never) == found


def test_a_refresh_reads_only_what_is_live_and_old() -> None:
    for live, later, reads in ((True, 20.0, 2), (True, 19.0, 1), (False, 1000.0, 1)):
        source = Source(live=live)
        kept, clock = shelf(source)
        kept.refresh(20, never)
        assert source.asked == []
        kept.take(60, whole=False, stop=never)
        clock.now = later
        kept.refresh(20, never)
        assert len(source.asked) == reads
        kept.clear()
        kept.take(60, whole=False, stop=never)
        assert len(source.asked) == reads + 1


def test_grid_and_quick_forecasts_keep_one_recording_each() -> None:
    source = Source()
    kept, _ = shelf(source)
    quick, grid = kept.take(60, whole=False, stop=never), kept.take(60, whole=True, stop=never)
    assert quick is not grid
    assert source.asked == [(60, held.FIRST_CALLS), (60, held.MOST_CALLS_OF_GRID)]
    assert kept.take(60, whole=True, stop=never) is grid and kept.take(60, whole=False, stop=never) is quick
    kept.take(90, whole=False, stop=never)
    assert len(source.asked) == 3


def test_where_replay_is_slow_fewer_calls_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "LEAST_CALLS", 40)
    monkeypatch.setattr(held, "FORECAST_S", 1e-9)
    source = Source()
    kept, _ = shelf(source)
    taken = kept.take(60, whole=False, stop=never)
    assert taken is not None and 0 < taken.about.calls <= 40
    assert taken.about.left_out == RECORDING.calls - taken.about.calls > 0
    assert [most for _, most in source.asked] == [held.FIRST_CALLS, 40]
    kept.take(90, whole=False, stop=never)
    assert source.asked[2:] == [(90, 40)]
    kept.take(60, whole=True, stop=never)
    assert source.asked[3:] == [(60, held.MOST_CALLS_OF_GRID)], "a grid takes all"


def test_where_replay_is_fast_more_are_taken_next_time() -> None:
    source = Source()
    kept, _ = shelf(source)
    kept._most = RECORDING.calls
    assert kept.take(60, whole=False, stop=never) is not None
    assert RECORDING.calls < kept._most <= held.MOST_CALLS


def test_a_file_that_is_quickly_replayed_is_read_again_for_more_calls() -> None:
    source = Source()
    kept, clock = shelf(source)
    kept._most = 40
    first = kept.take(60, whole=False, stop=never)
    assert first is not None and first.about.left_out and kept._most >= 2 * first.about.calls
    clock.now = 20
    kept.refresh(20, never)
    more = kept.take(60, whole=False, stop=never)
    assert len(source.asked) == 2 and more is not None and more.about.calls > first.about.calls
    clock.now = 40
    kept.refresh(20, never)
    assert len(source.asked) == 2, "all of it was read"


def test_what_was_stopped_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "LOOK_EVERY", 1)
    source = Source()
    kept, _ = shelf(source)
    assert kept.take(60, whole=False, stop=lambda: True) is None
    assert kept.take(60, whole=False, stop=never) is not None
    assert len(source.asked) == 2


def test_a_refused_recording_says_why_and_has_no_present(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(recording, *, stop) -> None:
        raise Refused("12 messages were lost; ask about a window without losses")

    monkeypatch.setattr(held, "fidelity", refused)
    kept, _ = shelf(Source())
    taken = kept.take(60, whole=False, stop=never)
    assert taken is not None and taken.present is None and "12 messages were lost" in taken.refused and math.isnan(taken.pace)


def test_the_present_is_what_was_measured_where_it_was() -> None:
    loaded = Loaded(replace(RECORDING, measured={"hit": HIT + 0.01, "ttft_p95": 9.0, "no_such": 1.0}))
    kept = Held(loaded, "", 0.0)
    assert kept.learn(never)
    present = kept.present
    assert present is not None and present.figures["hit"] == HIT + 0.01 and present.figures["ttft_p95"] == 9.0
    assert "no_such" not in present.figures and not any(math.isnan(value) for value in present.figures.values())
    assert {r.figure for r in present.residuals} == {"hit", "ttft_p95"}


def test_kept_forecasts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST_KEPT", 2)
    kept = Held(Loaded(RECORDING), "", 0.0)
    assert kept.learn(never)
    for gamma in (0.1, 0.2, 0.3):
        kept.find(Setting(gamma=gamma), never)
    assert [setting.gamma for setting in kept.found] == [0.2, 0.3]


def test_a_grid_without_axes_is_refused() -> None:
    with pytest.raises(UsageError, match="no axis"):
        Held(Loaded(RECORDING), "", 0.0).grid({})


