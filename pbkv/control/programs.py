"""`POST /programs/release`: how clients of ThunderAgent say that a program is over. Served by both engines."""

import json
from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from pbkv.adapters import program_in, program_workflow
from pbkv.control.router import Refused, read_body
from pbkv.errors import PbkvError, UsageError


def programs_router(close: Callable[[str], Awaitable[bool]]) -> APIRouter:
    """The route. `close` ends a workflow and says whether it was live; like calls, and unlike /pbkv, it needs no control token."""
    router = APIRouter()

    @router.post("/programs/release")
    async def release(request: Request) -> JSONResponse:
        try:
            workflow = program_workflow(program_in(json.loads(await read_body(request))))
            return JSONResponse({"program_id": workflow, "released": await close(workflow)})
        except Refused as error:
            return _error(error.status, str(error))
        except UsageError as error:
            return _error(400, str(error))
        except PbkvError as error:
            return _error(503, str(error))
        except (ValueError, RecursionError):
            return _error(400, "body: expected a JSON object with program_id")

    return router


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status)
