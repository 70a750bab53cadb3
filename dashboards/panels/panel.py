"""The frame of every chart panel: title, legend, summary, CSV link, the graph, and a sentence instead of an empty box."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from collector.views.models import Overview
from dashboards.figure import Figure
from dashboards.scene import Scene

#: Header and rows of a CSV file; values as the store has them (tokens, bytes, ms, fractions, ISO times in UTC).
Table = tuple[Sequence[str], list[Sequence[object]]]
Props = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Panel:
    """A chart. `draw` returns None when the window holds nothing to draw; then `empty` says what to switch on.

    `legend`: (text, colour name) per colour, or a line of text where one colour says it all.
    """

    name: str
    title: str
    meaning: str
    legend: tuple[tuple[str, str], ...] | str
    draw: Callable[[Scene], Figure | None]
    summary: Callable[[Overview], str]
    empty: Callable[[Overview], str]
    table: Callable[[Overview], Table]
    height: int = 208


def frame(panel: Panel) -> dmc.Paper:
    """The panel without data; `props` fills it."""
    return dmc.Paper(
        [
            header(panel.name, panel.title, panel.meaning, panel.legend),
            html.Div(
                dcc.Graph(
                    id=f"{panel.name}-graph",
                    figure={"data": [], "layout": {"height": panel.height}},
                    config={"displayModeBar": False, "responsive": True},
                    style={"height": panel.height},
                ),
                id=f"{panel.name}-plot",
                style={"display": "none"},
            ),
            html.Div("Waiting for data …", id=f"{panel.name}-empty", className="empty", style={"minHeight": panel.height}),
        ],
        className="panel",
        id=f"{panel.name}-panel",
    )


def header(name: str, title: str, meaning: str, legend: Sequence[tuple[str, str]] | str = "", *, csv: bool = True) -> html.Div:
    """Title and legend of a panel or grid, with a link to its CSV. The meaning is a tooltip on the title."""
    keys = (
        legend
        if isinstance(legend, str)
        else [html.Span([html.I(style={"background": f"var(--c-{role})"}), text], className="key") for text, role in legend]
    )
    line = html.Div(
        [
            dmc.Tooltip(
                html.H2(title, className="panel-title"), label=meaning, multiline=True, w=300, position="bottom-start", openDelay=300
            ),
            html.Span("", id=f"{name}-summary", className="summary"),
            *([_csv(name, title)] if csv else []),
        ],
        className="panel-head",
    )
    return html.Div([line, *([html.Div(keys, className="legend")] if legend else [])])


def _csv(name: str, title: str) -> html.A:
    return html.A(
        "CSV",
        id=f"{name}-csv",
        href=f"/csv/{name}.csv",
        download=f"pbkv-{name}.csv",
        className="csv",
        title=f"Download {title} as CSV",
    )


def props(panel: Panel, scene: Scene) -> Props:
    """What changes with the data: component id -> properties."""
    drawn = panel.draw(scene)
    show, hide = {"display": "block"}, {"display": "none"}
    result: Props = {f"{panel.name}-summary": {"children": panel.summary(scene.overview)}}
    if drawn is None:
        result[f"{panel.name}-plot"] = {"style": hide}
        result[f"{panel.name}-empty"] = {"children": panel.empty(scene.overview), "style": {"minHeight": panel.height}}
        return result
    drawn["layout"]["height"] = panel.height
    result[f"{panel.name}-graph"] = {"figure": drawn}
    result[f"{panel.name}-plot"] = {"style": show}
    result[f"{panel.name}-empty"] = {"style": hide}
    return result
