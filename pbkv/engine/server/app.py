"""The HTTP interface: what agents call, what consoles call, what a metrics scraper reads."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ValidationError

from pbkv.control.programs import programs_router
from pbkv.control.router import ControlBackend, Refused, control_router, read_body, what_is_wrong
from pbkv.engine.server import openai
from pbkv.engine.server.errors import BadRequest, refusal
from pbkv.engine.server.models import ChatRequest, CloseSession, GenerateRequest
from pbkv.engine.server.service import Service
from pbkv.identity import session_workflow

#: Bytes of a request body beside its text: identity, and what is ignored.
MAX_BESIDE = 1 << 20
#: Bytes that JSON may need for one byte of text.
_ESCAPED = 6
Model = TypeVar("Model", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Response]]


def make_app(service: Service, backend: ControlBackend, token: str | None) -> FastAPI:
    """All routes. `token` guards /pbkv alone, as it does with the plugin."""
    app = FastAPI(title="PBKV embedded engine", openapi_url=None)
    app.include_router(control_router(backend, token))
    app.include_router(programs_router(service.close))
    limit = MAX_BESIDE + _ESCAPED * service.calls.context

    async def parse(request: Request, model: type[Model]) -> Model:
        return model.model_validate_json(await read_body(request, limit))

    async def chat(request: Request) -> Response:
        return await openai.chat(service, await parse(request, ChatRequest), request)

    async def generate(request: Request) -> Response:
        return await openai.generate(service, await parse(request, GenerateRequest), request)

    async def models(request: Request) -> Response:
        return JSONResponse(openai.models(service))

    async def close_session(request: Request) -> Response:
        await service.close(session_workflow((await parse(request, CloseSession)).session_id))
        return JSONResponse({})

    async def flush_cache(request: Request) -> Response:
        if not service.flush():
            return refusal(400, "requests are waiting or running: the cache can be flushed when there are none")
        return PlainTextResponse("Cache flushed.\n")

    async def health(request: Request) -> Response:
        return PlainTextResponse("")

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(service.meters.text(), media_type="text/plain; version=0.0.4")

    routes: list[tuple[str, str, Handler]] = [
        ("POST", "/v1/chat/completions", chat), ("POST", "/generate", generate), ("GET", "/v1/models", models),
        ("POST", "/close_session", close_session), ("POST", "/flush_cache", flush_cache), ("GET", "/health", health),
        ("GET", "/metrics", metrics),
    ]
    for method, path, handler in routes:
        app.add_route(path, _guarded(handler), methods=[method])
    return app


def _guarded(handler: Handler) -> Handler:
    async def run(request: Request) -> Response:
        try:
            return await handler(request)
        except (BadRequest, Refused) as error:
            return refusal(error.status, str(error))
        except ValidationError as error:
            return refusal(400, what_is_wrong(error))

    return run
