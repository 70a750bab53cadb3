"""Refusals in the shape OpenAI clients read."""

from fastapi.responses import JSONResponse

_TYPES = {503: "overloaded_error"}


class BadRequest(Exception):
    """A request that cannot be served; `status` is HTTP's."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


def refusal(status: int, text: str) -> JSONResponse:
    """The answer to a request that is not served."""
    kind = _TYPES.get(status, "invalid_request_error")
    return JSONResponse({"error": {"message": text, "type": kind, "param": None, "code": status}}, status)
