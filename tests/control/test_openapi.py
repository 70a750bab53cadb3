"""The router against its own OpenAPI description: no input makes it answer with a server error or without a sentence."""

import schemathesis
from fastapi import FastAPI
from hypothesis import settings

from pbkv.control.router import control_router
from tests.support.control import MemoryBackend

_app = FastAPI()
_app.include_router(control_router(MemoryBackend(), None))
schema = schemathesis.openapi.from_asgi("/openapi.json", _app)


@schema.parametrize()
@settings(max_examples=15, deadline=None, derandomize=True)
def test_no_input_breaks_the_server(case: schemathesis.Case) -> None:
    response = case.call()
    assert response.status_code < 500
    if response.status_code not in (200, 405):
        assert response.json()["error"]
