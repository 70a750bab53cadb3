"""The paths of the page. Which of its views is seen is the browser's to tell by them."""

from starlette.types import ASGIApp, Receive, Scope, Send

WHATIF = "/whatif"


class OnePage:
    """ASGI middleware: every path of the page is the page.

    Dash looks for its assets only when "/" is asked for: a link to another path, opened first, would lead to a page without scripts.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == WHATIF:
            scope = {**scope, "path": "/", "raw_path": b"/"}
        await self._app(scope, receive, send)
