"""The push: one asynchronous stream per open page, no polling by the browser."""

import asyncio
from typing import Any

from dash import ctx, set_props  # pyright: ignore[reportUnknownVariableType]
from dash.exceptions import PreventUpdate, WebsocketDisconnected

from dashboards.page import Page, Prefs
from dashboards.site import Site

#: Between looks for something new, seconds. The source itself is read once a second.
TICK_S = 0.5
#: A page that does not answer this long is closed, frozen or asleep; nothing is queued for it until it answers again, seconds.
ANSWER_S = 10.0


def register(app: Any, site: Site) -> None:
    """Add the stream. It must belong to `app`: a global callback is unknown to a restarted server when a page's socket comes back first."""

    @app.callback(websocket=True, persistent=True)
    async def stream() -> None:
        socket: Any = ctx.websocket
        page: Page | None = None
        while socket is not None and not socket.is_shutdown:
            try:
                # After a reconnect the page still has its knob form; setting an equal shape again would throw away what is staged.
                if page is None:
                    page = Page(site, {("knob-shape", "data"): await socket.get_prop("knob-shape", "data", ANSWER_S)})
                prefs = Prefs.read(await socket.get_prop("prefs", "data", ANSWER_S))
            except TimeoutError:
                continue
            except WebsocketDisconnected:
                break
            if prefs is not None:
                for component, props in page.changes(prefs):
                    set_props(component, props)
            await asyncio.sleep(TICK_S)
        raise PreventUpdate
