"""The engine on a clock that only the test moves: what ends is told when the clock gets there, and never more is taken than was said."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.control.commands import Commands
from pbkv.engine.engine import Engine
from pbkv.engine.server.calls import Calls
from pbkv.engine.server.errors import BadRequest
from pbkv.engine.server.live import Live
from pbkv.engine.server.models import Identified
from pbkv.engine.server.text import PageIds
from pbkv.engine.settings import EngineSettings
from tests.support.loops import run_in_loop

PAGE, CONTEXT = 16, 4096


class Bench:
    """A live engine, its clock in `now` (seconds), and requests for it."""

    def __init__(self, *, speed: float = 1.0, max_pending: int = 9, device_tokens: int = 8192) -> None:
        self.now = 0.0
        self.engine = Engine(EngineSettings(page_size=PAGE, device_tokens=device_tokens, host_tokens=8192))
        self.calls = Calls(PageIds(PAGE), CONTEXT, self.engine.manager.counts)
        commands = Commands(self.engine.manager, dict, lambda: self.now)
        self.live = Live(self.engine, commands, speed=speed, max_pending=max_pending, clock=lambda: self.now)

    def request(self, text: str = "hello " * 40, tokens: int = 20, **identity: Any) -> Any:
        asked = Identified(custom_params={"pbkv": {"workflow": "w", **identity}})
        return self.calls.make(asked, asked.custom_params, text.encode(), tokens).request

    def at(self, now: float) -> None:
        """Move the clock and let the engine catch up, however many slices that takes."""
        self.now = now
        while self.live.catch_up():
            pass


def test_the_end_is_told_when_the_clock_gets_there() -> None:
    async def play() -> None:
        bench = Bench()
        bench.at(1.0)
        future = bench.live.submit(bench.request())
        seen = 1.0
        while not future.done():
            seen = bench.now
            bench.at(bench.now + 0.01)
        done = future.result()
        assert done.arrived == 1.0
        assert seen < done.ended <= bench.now
        assert (done.output_tokens, done.aborted, bench.live.pending) == (20, False, 0)

    run_in_loop(play)


@pytest.mark.parametrize("speed", [0.1, 1.0, 50.0])
def test_speed_scales_the_clock_and_not_the_engine(speed: float) -> None:
    async def play() -> None:
        bench = Bench(speed=speed)
        future = bench.live.submit(bench.request())
        bench.at(1000 / speed)
        done = future.result()
        one = Bench()
        other = one.live.submit(one.request())
        one.at(1000.0)
        assert (done.first_token, done.ended) == pytest.approx((other.result().first_token, other.result().ended), rel=0.2)
        assert bench.live.present == pytest.approx(1000)

    run_in_loop(play)


def test_a_late_submission_arrives_late() -> None:
    async def play() -> None:
        bench = Bench()
        first = bench.live.submit(bench.request())
        bench.at(0.002)
        second = bench.live.submit(bench.request("other " * 40))
        bench.at(10.0)
        assert (first.result().arrived, second.result().arrived) == (0.0, 0.002)
        assert second.result().admitted >= 0.002

    run_in_loop(play)


def test_more_than_it_takes_is_refused_and_taken_later() -> None:
    async def play() -> None:
        bench = Bench(max_pending=2)
        futures = [bench.live.submit(bench.request(f"{n} " * 50)) for n in range(2)]
        with pytest.raises(BadRequest, match="2 requests are waiting or running") as caught:
            bench.live.submit(bench.request())
        assert caught.value.status == 503
        bench.at(10.0)
        assert all(f.done() for f in futures)
        bench.live.submit(bench.request())
        assert bench.live.pending == 1

    run_in_loop(play)


def test_a_call_that_can_never_fit_is_refused() -> None:
    async def play() -> None:
        bench = Bench(device_tokens=256)
        with pytest.raises(BadRequest, match="the device pool has 256"):
            bench.live.submit(bench.request("x" * 400))
        assert bench.live.pending == 0

    run_in_loop(play)


def test_an_abandoned_call_leaves_the_engine() -> None:
    async def play() -> None:
        bench = Bench()
        request = bench.request(tokens=1000)
        future = bench.live.submit(request)
        bench.at(0.5)
        assert bench.engine.running == 1
        assert bench.live.abort(request)
        assert (bench.engine.running, bench.live.pending, future.cancelled()) == (0, 0, True)
        assert not bench.live.abort(request), "once"
        assert bench.engine.tree.device.balanced()
        bench.at(60.0)

    run_in_loop(play)


def test_abandoned_at_the_very_end_is_no_abort_of_the_engine() -> None:
    async def play() -> None:
        bench = Bench()
        request = bench.request(tokens=1)
        future = bench.live.submit(request)
        bench.at(1e-6)  # the engine has taken the only step, the clock has not reached its end
        assert bench.engine.running == 0 and not future.done()
        bench.live.abort(request)
        bench.at(1.0)
        assert future.cancelled()

    run_in_loop(play)


def test_at_the_end_whoever_waits_is_told() -> None:
    async def play() -> None:
        bench = Bench()
        future = bench.live.submit(bench.request())
        bench.live.end()
        with pytest.raises(BadRequest, match="shutting down"):
            await future
        with pytest.raises(BadRequest, match="shutting down"):
            bench.live.submit(bench.request())
        bench.at(10.0)

    run_in_loop(play)


def test_the_loop_answers_while_the_engine_is_behind() -> None:
    async def play() -> None:
        bench = Bench()
        for n in range(8):
            bench.live.submit(bench.request(f"{n} " * 50, tokens=100 + n))
        ticks = iter(range(10**9))
        # A clock that moves with every look: a slice is over after a few steps, long before the engine is where the clock is.
        bench.live._clock = lambda: 100.0 + next(ticks) * 0.004
        assert bench.live.catch_up(), "behind"
        assert 0 < bench.engine.now < 100
        future = bench.live.submit(bench.request("late " * 50))
        while not future.done():
            bench.live.catch_up()
        assert future.result().arrived <= future.result().admitted

    run_in_loop(play)


def test_run_resolves_calls_and_retires_the_idle_until_cancelled() -> None:
    async def play() -> None:
        bench = Bench(speed=1.0)
        pump = asyncio.create_task(bench.live.run())
        future = bench.live.submit(bench.request())
        while not future.done():
            bench.now += 0.05
            await asyncio.sleep(0.003)
        assert len(bench.engine.manager.state.live) == 1
        while bench.engine.manager.state.live:
            bench.now += 100.0
            await asyncio.sleep(0.003)
        pump.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pump

    run_in_loop(play)


@given(st.binary(min_size=1, max_size=600), st.integers(1, 300))
def test_whatever_the_lengths_the_engine_takes_the_request(prompt: bytes, tokens: int) -> None:
    async def play() -> None:
        bench = Bench()
        asked = Identified(session_id="s")
        written = bench.calls.make(asked, None, prompt, tokens)
        assert len(written.reply) == tokens
        future = bench.live.submit(written.request)
        bench.at(1000.0)
        done = future.result()
        assert (done.output_tokens, done.device_hit + done.host_hit) == (tokens, 0)
        again = bench.live.submit(bench.calls.make(asked, None, prompt + written.reply, 1).request)
        bench.at(2000.0)
        # The last token of a reply has no KV, and a page that is not full is not kept.
        assert again.result().device_hit == (len(prompt) + tokens - 1) // PAGE * PAGE

    run_in_loop(play)


def test_identity_decides_who_makes_the_call() -> None:
    bench = Bench()
    request = bench.request(agent="planner", final=True)
    assert (request.workflow, request.agent, request.final, request.attributed) == ("w", "planner", True, True)
    nobody = bench.calls.make(Identified(), None, b"hello", 3).request
    assert (nobody.workflow, nobody.attributed) == ("", False)
    broken = bench.calls.make(Identified(), {"pbkv": {"workflow": 5}}, b"hello", 3).request
    assert (broken.attributed, bench.engine.manager.counts["malformed"]) == (False, 1)
    assert len({request.id, nobody.id, broken.id}) == 3


@pytest.mark.parametrize(("prompt", "tokens", "says"), [
    (b"", 5, "empty"), (b"x" * CONTEXT, 1, "the context holds 4096"), (b"x", CONTEXT, "4096 more"),
])
def test_what_does_not_fit_into_the_context_is_refused(prompt: bytes, tokens: int, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        Bench().calls.make(Identified(), None, prompt, tokens)
