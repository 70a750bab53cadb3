"""Requests as they arrive at SGLang's web server: what they say of their caller beyond SGLang's own fields."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any, cast

from pbkv.adapters import FINAL_HEADER, PROGRAM_FIELD, SESSION_HEADER, adapted_identity, program_in
from pbkv.errors import UsageError
from pbkv.identity import HINT_ACTION, CallIdentity

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
_HEADERS = frozenset({SESSION_HEADER.encode(), FINAL_HEADER.encode()})
#: Bodies without it are not decoded a second time.
_QUOTED = f'"{PROGRAM_FIELD}"'.encode()


class Arrival:
    """One HTTP request; complete once its body has been read."""

    def __init__(self, headers: list[tuple[bytes, bytes]]) -> None:
        self._headers: dict[str, str] = {}
        for name, value in headers:
            if name in _HEADERS:
                self._headers.setdefault(name.decode(), value.decode("latin-1"))
        self._program: object = None

    def identity(self) -> CallIdentity | None:
        """Raises UsageError for a malformed one."""
        return adapted_identity(self._headers, self._program)

    def watch(self, receive: Receive) -> Receive:
        """`receive`, with the body read along."""
        chunks: list[bytes] = []

        async def watched() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                chunks.append(message.get("body", b""))
                if not message.get("more_body", False):
                    self._read(b"".join(chunks))
                    chunks.clear()
            return message

        return watched

    def _read(self, body: bytes) -> None:
        if _QUOTED not in body:
            return
        try:
            self._program = program_in(json.loads(body))
        except (ValueError, RecursionError):
            return  # SGLang refuses it in its own words


_ARRIVAL: ContextVar[Arrival | None] = ContextVar("pbkv_arrival", default=None)


class Arrivals:
    """ASGI middleware. A context variable carries the request to where it is tokenized, in its own task or one that was made from it."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "GET":
            await self._app(scope, receive, send)
            return
        arrival = Arrival(scope["headers"])
        token = _ARRIVAL.set(arrival)
        try:
            await self._app(scope, arrival.watch(receive), send)
        finally:
            _ARRIVAL.reset(token)


def adopt_identity(obj: Any) -> None:
    """Give a request about to be tokenized the identity it arrived with, unless it has one of PBKV's or SGLang's own.

    A malformed one becomes a short text that the scheduler counts as malformed; the request is served.
    """
    arrival = _ARRIVAL.get()
    sampling = getattr(obj, "sampling_params", None)
    if arrival is None or not isinstance(sampling, dict):
        return
    params = cast(dict[str, Any], sampling)
    custom = params.get("custom_params") or {}
    if not isinstance(custom, dict) or "pbkv" in custom or _has_own(obj):
        return
    try:
        identity = arrival.identity()
    except UsageError as error:
        payload: Any = str(error)
    else:
        if identity is None:
            return
        payload = {"workflow": identity.workflow, "final": identity.final}
    obj.sampling_params = {**params, "custom_params": {**custom, "pbkv": payload}}


def _has_own(obj: Any) -> bool:
    hints = getattr(obj, "kv_hints", None)
    return bool(getattr(obj, "session_id", None)) or any(a.action_type == HINT_ACTION for a in getattr(hints, "actions", ()))
