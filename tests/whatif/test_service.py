"""The forecast service with its real process: answers, the newest question first, what is kept, limits, and a process that dies."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pbkv.errors import UsageError
from pbkv.whatif import service
from pbkv.whatif.forecast import fidelity, forecast
from pbkv.whatif.question import Answer, Load
from pbkv.whatif.service import Forecaster, check_axes
from pbkv.whatif.setting import Setting
from tests.support import forecasts
from tests.support.forecasts import Generated

DEADLINE_S = 60


class Heard:
    """Collects the steps of one answer."""

    def __init__(self) -> None:
        self.steps: list[Answer] = []
        self._news = threading.Condition()

    def __call__(self, answer: Answer) -> None:
        with self._news:
            self.steps.append(answer)
            self._news.notify_all()

    def until_found(self, count: int) -> Answer:
        return self._until(lambda: bool(self.steps) and len(self.steps[-1].found) >= count)

    def done(self) -> Answer:
        return self._until(lambda: bool(self.steps) and self.steps[-1].done)

    def _until(self, condition) -> Answer:
        with self._news:
            assert self._news.wait_for(condition, DEADLINE_S), self.steps
            return self.steps[-1]


@contextmanager
def serving(load: Load) -> Iterator[Forecaster]:
    forecaster = Forecaster(load)
    try:
        yield forecaster
    finally:
        forecaster.close()


def ask(forecaster: Forecaster, owner: str, *settings: Setting, **more) -> Heard:
    heard = Heard()
    forecaster.ask(owner, settings, heard, **more)
    return heard


@pytest.fixture(scope="module")
def forecaster() -> Iterator[Forecaster]:
    with serving(Generated()) as running:
        yield running


LRU, GAMMA = Setting(policy="lru"), Setting(gamma=0.5)


def test_an_answer_is_what_a_replay_here_finds(forecaster: Forecaster) -> None:
    answer = ask(forecaster, "ana", LRU, GAMMA).done()
    recording = Generated()(600, 4000).recording
    known = fidelity(recording)
    assert answer.error == "" and answer.about is not None and answer.present is not None
    assert answer.about.calls == recording.calls and answer.about.device_tokens == 60_000 and answer.about.knobs["policy"] == "he"
    assert answer.present.figures["hit"] == known.present.figures["hit"]
    for place, setting in enumerate((LRU, GAMMA)):
        assert answer.found[place].setting == setting
        assert answer.found[place].estimates == forecast(recording, known, setting).estimates
    assert answer.found[0].estimates["hit"].change < 0


def test_without_settings_the_present_alone(forecaster: Forecaster) -> None:
    answer = ask(forecaster, "ana").done()
    assert answer.present is not None and not answer.found and answer.error == ""


def test_a_setting_that_cannot_be_is_refused_and_the_others_answered(forecaster: Forecaster) -> None:
    answer = ask(forecaster, "ana", Setting(device_tokens=1), LRU).done()
    assert "device_tokens" in answer.found[0].refused and not answer.found[0].estimates
    assert answer.found[1].estimates and not answer.found[1].refused


def test_what_is_as_recorded_changes_nothing(forecaster: Forecaster) -> None:
    estimate = ask(forecaster, "ana", Setting(policy="he", gamma=0.8, k=3)).done().found[0].estimates["hit"]
    assert estimate.change == 0 and not estimate.certain


def test_the_recording_is_read_once(tmp_path: Path) -> None:
    log = tmp_path / "reads"
    with serving(Generated(log=str(log))) as forecaster:
        first = ask(forecaster, "ana", LRU).done()
        again = ask(forecaster, "bob", LRU, GAMMA).done()
        assert again.found[0].estimates == first.found[0].estimates
        assert log.read_text() == "600 1000\n"
        ask(forecaster, "ana", LRU, span_s=60).done()
        assert log.read_text().splitlines()[1].startswith("60 ")


def test_a_newer_question_cancels_the_older_one(tmp_path: Path) -> None:
    many = [Setting(gamma=n / 20) for n in range(16)]
    with serving(Generated(workflows=60)) as forecaster:
        older = ask(forecaster, "ana", *many)
        older.until_found(1)
        newer = ask(forecaster, "ana", LRU)
        assert newer.done().found[0].estimates
        assert not older.steps[-1].done and len(older.steps[-1].found) < 16


def test_a_withdrawn_question_stops_and_others_go_on(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with serving(Generated(gate=str(gate))) as forecaster:
        ana, bob = ask(forecaster, "ana", LRU), ask(forecaster, "bob", GAMMA)
        assert forecaster.ahead("ana") == 0 and forecaster.ahead("bob") == 1 and forecaster.ahead("eve") == 0
        forecaster.withdraw("ana")
        forecaster.withdraw("nobody")
        gate.write_bytes(b"")
        # ana's reading is abandoned before its end, so bob's question reads for itself.
        threading.Thread(target=gate.write_bytes, args=(b"",), daemon=True).start()
        assert bob.done().found[0].estimates
        assert ana.steps == []


@pytest.mark.parametrize(("load", "sentence"), [
    (forecasts.refuse, "the log of the last 600 s has no calls; record for longer, or take a wider window"),
    (forecasts.fail, "the forecast failed: ZeroDivisionError: of the loader"),
    (forecasts.die, "the forecast process ended before it had answered; ask again"),
    (forecasts.die_loudly, "the forecast process ended before it had answered (out of memory); ask again"),
])
def test_what_goes_wrong_is_one_sentence_and_the_next_question_is_heard(load: Load, sentence: str) -> None:
    with serving(load) as forecaster:
        for _ in range(2):
            answer = ask(forecaster, "ana", LRU).done()
            assert answer.error == sentence and answer.about is None and not answer.found


def test_a_killed_process_is_replaced() -> None:
    with serving(Generated()) as forecaster:
        ask(forecaster, "ana").done()
        assert forecaster._process is not None
        first = forecaster._process
        os.kill(first.pid, signal.SIGKILL)
        first.wait(DEADLINE_S)
        heard = ask(forecaster, "ana", LRU)
        if heard.done().error:  # its end was noticed only after the question was on its way
            heard = ask(forecaster, "ana", LRU)
        assert heard.done().found[0].estimates
        assert forecaster._process is not first


def test_the_process_ends_with_the_service(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    forecaster = Forecaster(Generated())
    ask(forecaster, "ana").done()
    process = forecaster._process
    assert process is not None
    forecaster.close()
    assert process.wait(DEADLINE_S) == 0
    with pytest.raises(UsageError, match="closed"):
        ask(forecaster, "ana")


def test_nothing_is_started_before_the_first_question() -> None:
    forecaster = Forecaster(Generated())
    assert forecaster._process is None
    forecaster.close()


def test_a_grid_is_parsed_where_the_recording_is(forecaster: Forecaster) -> None:
    heard = Heard()
    forecaster.grid("ana", {"policy": "lru,he", "device_tokens": "x0.5,x1"}, heard)
    answer = heard.done()
    assert answer.error == "" and len(answer.settings) == 4 == len(answer.found)
    assert {s.device_tokens for s in answer.settings} == {30_000, 60_000}
    smaller, larger = (answer.found[n].estimates["hit"].value for n in (0, 1))
    assert smaller <= larger
    assert answer.present is not None and answer.present.figures["hit"] == pytest.approx(answer.found[3].estimates["hit"].value)


def test_cells_of_a_grid_are_kept_in_a_folder(tmp_path: Path) -> None:
    axes = {"policy": "lru,he", "device_tokens": "x0.5,x1"}
    answers: list[Answer] = []
    for _ in range(2):
        forecaster = Forecaster(Generated(), cache=str(tmp_path / "cells"))
        heard = Heard()
        forecaster.grid("ana", axes, heard)
        answers.append(heard.done())
        forecaster.close()
    assert answers[0].found == answers[1].found and len(answers[0].found) == 4
    assert len(list((tmp_path / "cells").glob("*.json"))) == 4


def test_a_withdrawn_grid_stops_and_the_next_one_runs() -> None:
    with serving(Generated(workflows=60)) as forecaster:
        first = Heard()
        forecaster.grid("ana", {"gamma": "0:1:0.01"}, first)
        first.until_found(1)
        forecaster.withdraw("ana")
        second = Heard()
        forecaster.grid("bob", {"policy": "lru"}, second)
        assert second.done().found[0].estimates
        assert not first.steps[-1].done and len(first.steps[-1].found) < 101


def test_a_grid_that_needs_what_was_not_recorded() -> None:
    with serving(Generated(host_tokens=0)) as forecaster:
        heard = Heard()
        forecaster.grid("ana", {"host_tokens": "x2"}, heard)
        assert "none were recorded" in heard.done().error


@pytest.mark.parametrize(("axes", "sentence"), [
    ({}, "no axis"),
    ({"gamme": "1"}, "no such axis"),
    ({"gamma": "nan"}, "expected numbers from 0 to 1"),
    ({"gamma": ""}, "expected numbers from 0 to 1"),
    ({"k": "0:8:1"}, "expected whole numbers from 1 to 8"),
    ({"device_tokens": "1:1000000:1"}, "expected at most 2,000"),
])
def test_bad_axes_are_refused_before_anything_starts(axes: dict[str, str], sentence: str) -> None:
    forecaster = Forecaster(forecasts.die)
    with pytest.raises(UsageError, match=sentence):
        forecaster.grid("ana", axes, Heard())
    with pytest.raises(UsageError, match=sentence):
        check_axes(axes)
    assert forecaster._process is None


def test_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setattr(service, "MOST_OWNERS", 2)
    with serving(Generated(gate=str(gate))) as forecaster:
        with pytest.raises(UsageError, match="17 at once; expected up to 16"):
            ask(forecaster, "ana", *([LRU] * 17))
        for span in (0.0, 1e9, float("nan")):
            with pytest.raises(UsageError, match="expected 1 to 86400 seconds"):
                ask(forecaster, "ana", LRU, span_s=span)
        ana, bob = ask(forecaster, "ana"), ask(forecaster, "bob")
        with pytest.raises(UsageError, match="2 others are waiting"):
            ask(forecaster, "eve")
        gate.write_bytes(b"")
        assert ana.done().present and bob.done().present
        gone = ask(forecaster, "eve", LRU)
        assert gone.done().found
