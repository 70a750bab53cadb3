"""Guards in front of the page: host names, origins and headers."""

from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Whether binding `host` keeps the page on this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def policy(script_hashes: Sequence[str]) -> str:
    """Content security policy: everything from here, inline scripts only those Dash puts into the page.

    Styles are inline by nature in Mantine, plotly and ag-grid.
    """
    return "; ".join(
        (
            "default-src 'self'",
            f"script-src 'self' {' '.join(script_hashes)}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self'",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


class Guard:
    """ASGI middleware. `local`: answer only requests addressed to this machine by name, so that a foreign page whose name was
    rebound to 127.0.0.1 gets nothing; everywhere, a request that changes something must come from this page."""

    def __init__(self, app: ASGIApp, *, local: bool, csp: str) -> None:
        self._app, self._local = app, local
        self._headers = [
            (b"content-security-policy", csp.encode()),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"x-content-type-options", b"nosniff"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if scope["type"] == "http":
            send = self._adding(send)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4003, "reason": refusal})
        else:
            await PlainTextResponse(refusal, 403)(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._local and _name(f"//{host}") not in _LOOPBACK_NAMES:
            return "host: this page answers only to localhost and 127.0.0.1"
        changing = scope["type"] == "websocket" or scope["method"] not in _SAFE
        if changing and origin is not None and _netloc(origin) != host:
            return "origin: expected this page's own"
        if changing and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "origin: expected this page's own"
        return None

    def _adding(self, send: Send) -> Send:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(h for h in self._headers if h[0] not in present)]
            await send(message)

        return with_headers


def _netloc(url: str) -> str | None:
    try:
        return str(urlsplit(url).netloc)
    except ValueError:
        return None


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
