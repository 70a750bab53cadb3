"""The page: header, verdict, tiles, charts beside the knob card, grids."""

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from dashboards.knobs import card
from dashboards.panels import board, changes, tiles, workflows
from dashboards.paths import WHATIF
from dashboards.site import Site
from dashboards.whatif import view
from dashboards.windows import DEFAULT, WINDOWS

_GREYS = ["#e6e9ee", "#c3cad4", "#9aa4b2", "#6b7686", "#3a4452", "#2a323d", "#1d232c", "#171c23", "#0f1318", "#0b0e12"]
_THEME: Any = {"primaryColor": "blue", "colors": {"dark": _GREYS}, "defaultRadius": 6}


def page(site: Site) -> Component:
    """The whole page without data."""
    return dmc.MantineProvider(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="prefs"),
            html.Div("0", id="beat", hidden=True),
            html.Div(
                [
                    html.Strong("This page lost its web server."),
                    html.Span("Start it again with `pbkv web`. The numbers below are old; the page goes on by itself."),
                ],
                className="banner bad offline",
                role="alert",
            ),
            _header(site),
            html.Main(
                [
                    html.Div(id="banner"),
                    html.Div([_verdict(), tiles.component(), _body(site)], id="board-view", className="view"),
                    html.Div(view.view(readonly=site.readonly), id="whatif-view", className="view out"),
                ]
            ),
        ],
        id="mantine",
        forceColorScheme="dark",
        theme=_THEME,
    )


def _header(site: Site) -> html.Header:
    picker = dmc.SegmentedControl(
        id="window", data=[{"value": k, "label": label} for k, (label, _) in WINDOWS.items()], value=DEFAULT, size="xs"
    )
    return html.Header(
        [
            html.H1("PBKV", className="brand"),
            html.Nav(
                [
                    dcc.Link("Board", href="/", id="to-board", className="nav current"),
                    dcc.Link("What-if", href=WHATIF, id="to-whatif", className="nav"),
                ],
                **_aria("Pages"),
            ),
            html.Span("connecting", id="badge", className="badge quiet", role="status"),
            html.Span("", id="server", className="server", title=site.source),
            html.Span("", id="as-of", className="as-of"),
            html.Div(picker, role="group", title="time window of all panels", **_aria("Time window of all panels")),
            dmc.Button("Pause", id="pause", size="compact-xs", variant="default", n_clicks=0),
            dmc.Button("Light theme", id="scheme", size="compact-xs", variant="default", n_clicks=0),
        ],
        className="top",
    )


def _aria(label: str) -> dict[str, Any]:
    return {"aria-label": label}


def _verdict() -> html.Div:
    return html.Div("Waiting for the first data", id="verdict", className="verdict", role="status")


def _body(site: Site) -> html.Div:
    return html.Div(
        [
            html.Div(board.charts(), className="area-charts"),
            html.Div(card.card(readonly=site.readonly, ask_token=site.page_token is not None), className="area-knobs"),
            html.Div([workflows.component(), changes.component()], className="area-grids"),
        ],
        className="body",
    )
