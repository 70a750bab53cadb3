"""Grids of pages: one per page, kept when they end, given up when the page has left; and what the page says of them."""

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.whatif import runs
from dashboards.whatif.runs import GRACE_S, Run, Runs, note, read_form
from pbkv.errors import UsageError
from pbkv.whatif.asked import Asked, asked
from pbkv.whatif.front import WhatIf, what_if
from pbkv.whatif.question import About, Answer, Found, Load
from pbkv.whatif.setting import Setting
from tests.support import forecasts
from tests.support.forecasts import Generated

DEADLINE_S = 60
SMALL = asked({"policy": "lru,he", "best": "hit"})
LARGE = asked({"policy": "he", "gamma": "0:1:0.01"})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched(Runs):
    """Tells when something has changed."""

    def __init__(self, desk: WhatIf, clock: Clock) -> None:
        super().__init__(desk, clock)
        self.news = threading.Condition()

    def _tell(self, page: str, given: Asked, answer: Answer) -> None:
        super()._tell(page, given, answer)
        with self.news:
            self.news.notify_all()

    def until(self, page: str, condition) -> Run:
        with self.news:
            assert self.news.wait_for(lambda: (run := self.get(page)) is not None and condition(run), DEADLINE_S), self.get(page)
        run = self.get(page)
        assert run is not None
        return run


@pytest.fixture
def clock() -> Clock:
    return Clock()


def over(load: Load, tmp_path: Path, clock: Clock) -> Iterator[Watched]:
    desk = what_if("a.duckdb", load, tmp_path)
    yield Watched(desk, clock)
    desk.close()


@pytest.fixture
def quick(tmp_path: Path, clock: Clock) -> Iterator[Watched]:
    yield from over(Generated(workflows=6), tmp_path, clock)


@pytest.fixture
def slow(tmp_path: Path, clock: Clock) -> Iterator[Watched]:
    yield from over(Generated(workflows=40), tmp_path, clock)


def test_a_grid_is_kept_under_an_id(quick: Watched) -> None:
    assert quick.live("p1") is None
    quick.start("p1", SMALL)
    run = quick.until("p1", lambda r: not r.running)
    result = quick._desk.results.get(run.id)
    assert [cell.setting.policy for cell in result.cells] == ["lru", "he"] and result.source == "a.duckdb"
    told = quick.live("p1")
    assert told is not None and told["id"] == run.id and not told["running"] and told["share"] == 100 and not told["bad"]
    assert told["note"].startswith("2 of 2 settings in ") and told["note"].endswith(f"kept as {run.id}.")


def test_a_newer_grid_of_the_page_takes_the_place_of_the_older(slow: Watched) -> None:
    slow.start("p1", LARGE)
    older = slow.until("p1", lambda r: len(r.answer.found) >= 1)
    slow.start("p1", SMALL)
    run = slow.until("p1", lambda r: not r.running)
    assert run.asked is SMALL and run.n > older.n and len(slow._desk.results.newest()) == 1


def test_a_stopped_grid_keeps_what_was_found(slow: Watched) -> None:
    slow.start("p1", LARGE)
    slow.until("p1", lambda r: len(r.answer.found) >= 1)
    slow.stop("p1")
    run = slow.get("p1")
    assert run is not None and not run.running and run.stopped and slow._desk.results.get(run.id).stopped
    assert "stopped, kept as" in note(run, 0)
    slow.stop("p1")
    slow.stop("nobody")
    assert slow.get("p1") is run


def test_a_page_that_has_left_loses_its_grid_and_another_page_gets_the_process(slow: Watched, clock: Clock) -> None:
    slow.start("p1", LARGE)
    slow.until("p1", lambda r: len(r.answer.found) >= 1)
    slow.start("p2", SMALL)
    assert slow.live("p2") is not None and "Waiting for 1 other grid" in slow.live("p2")["note"]
    clock.now = GRACE_S - 1
    slow.seen("p1")
    slow.seen("p2")
    clock.now += GRACE_S
    slow.seen("p2")
    assert slow.get("p1") is not None, "seen just within the time"
    clock.now += 2
    slow.seen("p2")
    assert slow.get("p1") is None
    assert slow.until("p2", lambda r: not r.running).id
    assert len(slow._desk.results.newest()) == 1


@pytest.mark.parametrize(("load", "sentence"), [
    (forecasts.refuse, "the log of the last 600 s has no calls"), (forecasts.die, "the forecast process ended"),
])
def test_a_grid_without_a_result_says_why(tmp_path: Path, clock: Clock, load: Load, sentence: str) -> None:
    for failing in over(load, tmp_path, clock):
        failing.start("p1", SMALL)
        run = failing.until("p1", lambda r: not r.running)
        told = failing.live("p1")
        assert told is not None and told["bad"] and sentence in told["note"] and run.id == "" and failing.result(run) is None


def test_bad_axes_leave_what_was_there(quick: Watched) -> None:
    with pytest.raises(UsageError, match="no axis"):
        quick.start("p1", asked({}))
    assert quick.get("p1") is None


def test_remembered_pages_are_bounded(quick: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MOST_PAGES", 1)
    quick.start("p1", SMALL)
    with pytest.raises(UsageError, match="1 pages run grids"):
        quick.start("p2", SMALL)
    quick.until("p1", lambda r: not r.running)
    quick.start("p2", SMALL)
    assert quick.get("p1") is None and quick.until("p2", lambda r: not r.running).id


def test_progress_in_words() -> None:
    about = About("x", 10, 60, "", 0, {}, 1, 1)
    settings = (Setting(k=1), Setting(k=2), Setting(k=3))
    assert note(Run(SMALL), 0) == "Reading the log …" and note(Run(SMALL), 2) == "Waiting for 2 other grids …"
    running = Answer(settings, about, found={0: Found(settings[0])}, left_s=12.4)
    assert note(Run(SMALL, running), 0) == "1 of 3 settings, 12 s left"
    assert note(Run(SMALL, Answer(settings, about, left_s=math.nan)), 0) == "0 of 3 settings"


def test_anything_may_stand_in_a_form() -> None:
    ids = [{"type": "wi-field", "field": f} for f in ("policy", "k", "gamma")]
    assert read_form(ids, ["lru", None, 5]) == {"policy": "lru"}
