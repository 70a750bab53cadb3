"""One FastAPI router for both engines: GET and PATCH /pbkv/knobs, confirm, history, state, schema and record."""

import hmac
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from pbkv.control.models import Confirm, KnobPatch, RecordAsk
from pbkv.errors import PbkvError, StaleVersion, UsageError
from pbkv.events.schema import manifest

#: Largest body of a control request that is read, bytes.
MAX_BODY = 64 << 10


class ControlBackend(Protocol):
    """What an engine does for the router. Methods raise StaleVersion or UsageError; anything they return is JSON."""

    async def knobs(self) -> dict[str, Any]: ...

    async def patch(self, patch: KnobPatch) -> dict[str, Any]: ...

    async def confirm(self, version: int) -> dict[str, Any]: ...

    async def history(self) -> list[dict[str, Any]]: ...

    async def state(self) -> dict[str, Any]: ...

    async def record(self, ask: RecordAsk) -> dict[str, Any]: ...


Auth = Annotated[str | None, Header()]


class Refused(Exception):
    """A request that is answered with an error status before it is looked into."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status)


async def read_body(request: Request, limit: int = MAX_BODY) -> bytes:
    """The request's body. Raises Refused as soon as it is longer than `limit` bytes, whether or not it says its length."""
    if int(request.headers.get("content-length") or 0) > limit:
        raise Refused(413, f"body: expected at most {limit} bytes")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise Refused(413, f"body: expected at most {limit} bytes")
    return bytes(body)


def what_is_wrong(error: ValidationError) -> str:
    """The first complaint about a body, as one sentence that names the field."""
    first = error.errors(include_url=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'body'}: {first['msg']}"


def control_router(backend: ControlBackend, token: str | None) -> APIRouter:
    """Routes under /pbkv. With a token, every request needs `Authorization: Bearer TOKEN`; without, only loopback may bind the engine."""
    def check(authorization: str | None) -> None:
        if token is None:
            return
        if authorization is None:
            raise Refused(401, "authorization: expected 'Bearer TOKEN'; name the token with --token-file or PBKV_TOKEN")
        if not hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
            raise Refused(403, "authorization: the token is not this server's")

    router = APIRouter(prefix="/pbkv")

    async def answer(call: Callable[[], Awaitable[Any]], authorization: str | None) -> JSONResponse:
        try:
            check(authorization)
            return JSONResponse(await call())
        except Refused as error:
            return _error(error.status, str(error))
        except ValidationError as error:
            return _error(422, what_is_wrong(error))
        except StaleVersion as error:
            return _error(409, str(error))
        except UsageError as error:
            return _error(422, str(error))
        except PbkvError as error:
            return _error(503, str(error))

    @router.get("/knobs")
    async def knobs(authorization: Auth = None) -> JSONResponse:
        return await answer(backend.knobs, authorization)

    @router.patch("/knobs")
    async def patch(request: Request, authorization: Auth = None) -> JSONResponse:
        async def run() -> Any:
            return await backend.patch(KnobPatch.model_validate_json(await read_body(request)))

        return await answer(run, authorization)

    @router.post("/knobs/confirm")
    async def confirm(request: Request, authorization: Auth = None) -> JSONResponse:
        async def run() -> Any:
            return await backend.confirm(Confirm.model_validate_json(await read_body(request)).version)

        return await answer(run, authorization)

    @router.get("/knobs/history")
    async def history(authorization: Auth = None) -> JSONResponse:
        return await answer(backend.history, authorization)

    @router.get("/state")
    async def state(authorization: Auth = None) -> JSONResponse:
        return await answer(backend.state, authorization)

    @router.post("/record")
    async def record(request: Request, authorization: Auth = None) -> JSONResponse:
        async def run() -> Any:
            return await backend.record(RecordAsk.model_validate_json(await read_body(request)))

        return await answer(run, authorization)

    @router.get("/schema")
    async def schema(authorization: Auth = None) -> JSONResponse:
        async def run() -> Any:
            return manifest()

        return await answer(run, authorization)

    return router
