"""The Dash application over one source."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from dash import Dash
from fastapi import FastAPI

from collector.reader import Reader
from collector.token import state_dir
from collector.views.overview import load_overview
from dashboards import export, layout, live, palette, prefs
from dashboards.feed import Feed
from dashboards.knobs import edit
from dashboards.knobs.watch import Watch
from dashboards.paths import OnePage
from dashboards.security import Guard, policy
from dashboards.site import Site
from dashboards.whatif import callbacks, tune
from pbkv.whatif.front import what_if
from pbkv.whatif.live import FromLog
from pbkv.whatif.question import Load

#: Heavier than the rest of the page by far; every panel draws on the server, so the browser needs no formulas or maps.
_INDEX = """<!DOCTYPE html>
<html lang="en" data-mantine-color-scheme="dark">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}<style>VARIABLES</style></head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""


def create_app(
    source: str | Callable[[], Reader],
    *,
    server: str | None = None,
    token: str | None = None,
    readonly: bool = False,
    local: bool = True,
    collector_token: str | None = None,
) -> Dash:
    """The app over `source` (grpc://host:port, a .duckdb file, or something that opens a reader); its threads run while it is served.

    `server`: control URL, else the one the stream names. `token`: shown to the control interface, and unless `local` asked from visitors
    before an edit. `local`: the page is bound to loopback and answers only to loopback names.
    """
    site = make_site(source, server=server, token=token, readonly=readonly, local=local, collector_token=collector_token)
    app = Dash(
        __name__,
        backend="fastapi",
        serve_locally=True,
        title="PBKV",
        update_title="",
        assets_folder=str(Path(__file__).parent / "assets"),
        index_string=_INDEX.replace("VARIABLES", palette.variables()),
        suppress_callback_exceptions=True,
    )
    app.layout = layout.page(site)
    prefs.register(app)
    live.register(app, site)
    edit.register(app, site)
    callbacks.register(app, site)
    if not site.readonly:
        tune.register(app, site)
    backend = app.server
    assert isinstance(backend, FastAPI)
    export.register(backend, site)
    backend.add_middleware(OnePage)
    backend.add_middleware(Guard, local=local, csp=policy(app.csp_hashes()))
    backend.state.site = site
    return app


def make_site(
    source: str | Callable[[], Reader],
    *,
    server: str | None,
    token: str | None,
    readonly: bool,
    local: bool,
    collector_token: str | None,
    load: Load | None = None,
) -> Site:
    """The shared state: one feed over the source, one watch over the knobs, one desk for forecasts.

    `load` reads what is forecast from; None = the log of the source.
    """
    opener = source if callable(source) else _opener(source, collector_token)
    feed = Feed(opener, load_overview)

    def address() -> str | None:
        if server is not None:
            return server
        snapshot = feed.any()
        overview = snapshot.overview if snapshot else None
        # A recording names the server it came from; who answers there today may be another one.
        return None if overview is None or overview.server is None or overview.status == "recorded" else overview.server.control_url

    watch = Watch(address, lambda: not feed.idle, token=token)
    name = source if isinstance(source, str) else "source"
    desk = what_if(name, load or FromLog(opener), state_dir())
    return Site(name, feed, watch, readonly, desk, None if local else token)


def _opener(source: str, token: str | None) -> Callable[[], Reader]:
    from collector import client

    # Not a lambda: the forecast process gets it by pickle.
    return partial(client.open, source, token)
