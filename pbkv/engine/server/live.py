"""An engine that follows the wall clock, inside one event loop: no thread, no lock, and every change falls between two of its steps."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from pbkv.control.commands import Commands
from pbkv.engine.engine import Engine
from pbkv.engine.requests import EngineRequest, Finished
from pbkv.engine.server.errors import BadRequest
from pbkv.errors import UsageError

#: Longest the engine computes before requests are looked at again, wall seconds.
_SLICE_S = 0.01
#: Shortest pause between two looks, wall seconds: steps that fall into it are taken together.
_REST_S = 0.002
#: Wall seconds between two clock commands: idle workflows retire, unconfirmed changes are taken back.
_TICK_S = 0.5


class Live:
    """Runs `engine`, `speed` engine seconds per wall second. An engine that cannot keep up falls behind the clock and catches up later.

    The engine knows how a step ends when it begins; what ends with it is told when the clock gets there.
    """

    def __init__(
        self, engine: Engine, commands: Commands, *, speed: float, max_pending: int, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.commands = engine, commands
        self._speed, self._max_pending, self._clock = speed, max_pending, clock
        self._began = clock()
        self._waiting: dict[int, asyncio.Future[Finished]] = {}
        self._over: deque[Finished] = deque()
        self._wake = asyncio.Event()
        self._stepped = asyncio.Event()
        self._next_tick = 0.0
        self._ending = False

    # ---- requests ----------------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Requests that have not ended."""
        return len(self._waiting)

    def submit(self, request: EngineRequest) -> asyncio.Future[Finished]:
        """It arrives now; the future ends with it. Raises BadRequest."""
        if self._ending:
            raise _ending()
        if self.pending >= self._max_pending:
            raise BadRequest(f"{self.pending} requests are waiting or running, the most this server takes; repeat it later", 503)
        self.catch_up()
        try:
            # An engine that is behind must not admit a call before it arrives.
            self.engine.submit(request, at=min(self.present, self.engine.now))
        except UsageError as error:
            raise BadRequest(str(error)) from None
        future = self._waiting[request.id] = asyncio.get_running_loop().create_future()
        self._wake.set()
        return future

    def abort(self, request: EngineRequest) -> bool:
        """Nobody waits for the request any more; False when it has ended anyway."""
        future = self._waiting.pop(request.id, None)
        if future is None:
            return False
        future.cancel()
        self.engine.abort(request.id)
        self.publish()
        self._wake.set()
        return True

    def end(self) -> None:
        """The server ends: whoever waits is told so, and nothing more is taken."""
        self._ending = True
        for future in self._waiting.values():
            future.set_exception(_ending())
        self._waiting.clear()
        self._stepped.set()

    def publish(self) -> None:
        """Send the events of what happened outside a step, with the samples that are due."""
        if self.engine.reporter:
            self.engine.reporter.step_ended()

    async def generated(self, request: EngineRequest) -> int:
        """Tokens of the request's reply, after the next look at the engine."""
        await self._stepped.wait()
        return self.engine.generated(request.id)

    # ---- time --------------------------------------------------------------------------------------------------------------

    @property
    def present(self) -> float:
        """Engine time that the clock has reached."""
        return (self._clock() - self._began) * self._speed

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            behind = self.catch_up()
            self._tick()
            self._stepped.set()
            self._stepped.clear()
            if behind:
                await asyncio.sleep(0)
                continue
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._pause())

    def catch_up(self) -> bool:
        """Take the steps up to the present and tell who has ended; True when the slice was over first."""
        present, stop = self.present, self._clock() + _SLICE_S
        while self.engine.now < present and self._clock() < stop:
            self._over += self.engine.advance(present)
        while self._over and self._over[0].ended <= present:
            finished = self._over.popleft()
            future = self._waiting.pop(finished.request.id, None)
            if future is not None:
                future.set_result(finished)
        return self.engine.now < present

    def _pause(self) -> float:
        """Wall seconds until there is something to do."""
        tick = self._next_tick - self._clock()
        if self.engine.next_event() is None and not self._over:
            return max(tick, 0.0)
        return max(_REST_S, min(tick, (self.engine.now - self.present) / self._speed))

    def _tick(self) -> None:
        now = self._clock()
        if now >= self._next_tick:
            self._next_tick = now + _TICK_S
            self.commands.run("tick", now=self.engine.now, wall_ns=time.time_ns())
            self.publish()


def _ending() -> BadRequest:
    return BadRequest("the server is shutting down", 503)
