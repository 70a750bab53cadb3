"""One engine behind HTTP: a request is given to it, followed while it is worked on, and dropped when its client leaves."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request

from pbkv.engine.requests import Finished
from pbkv.engine.server.calls import Calls, Written
from pbkv.engine.server.errors import BadRequest
from pbkv.engine.server.live import Live
from pbkv.engine.server.meters import Meters


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Service:
    """What the routes are about."""

    def __init__(self, live: Live, calls: Calls, meters: Meters, model: str) -> None:
        self.live, self.calls, self.meters, self.model = live, calls, meters, model

    async def finish(self, written: Written, request: Request) -> Finished:
        """The end of a call. Raises ClientGone when its client left first."""
        future = self.live.submit(written.request)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({future, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                raise ClientGone
            return self._ended(future.result())
        finally:
            gone.cancel()
            self._leave(written)

    async def follow(self, written: Written, future: asyncio.Future[Finished]) -> AsyncIterator[tuple[bytes, Finished | None]]:
        """Of a call that was submitted: what was written since the last time, and at the end how it went. Raises BadRequest."""
        sent = 0
        try:
            while not future.done():
                tokens = await self.live.generated(written.request)
                if tokens > sent and not future.done():
                    yield written.reply[sent:tokens], None
                    sent = tokens
            yield written.reply[sent:], self._ended(future.result())
        finally:
            self._leave(written)

    def _ended(self, done: Finished) -> Finished:
        self.meters.ended(done)
        if done.aborted:
            raise BadRequest("the call outgrew the device tier and was aborted; shorten it, or give the server more --device-tokens", 503)
        return done

    def _leave(self, written: Written) -> None:
        if self.live.abort(written.request):
            self.meters.left()

    async def close(self, workflow: str) -> bool:
        """The workflow is over; False when no such workflow is live."""
        closed = self.live.engine.close(workflow)
        self.live.publish()
        return closed

    def flush(self) -> bool:
        """Empty the cache; False while requests are waiting or running."""
        flushed = self.live.engine.flush()
        self.live.publish()
        return flushed


async def _disconnected(request: Request) -> None:
    # The body has been read: what still comes is the end of the connection.
    while (await request.receive())["type"] != "http.disconnect":
        pass
