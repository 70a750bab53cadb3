"""The What-if page: form, progress, the best setting, curve or map, table, and the results that are kept."""

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from dashboards.panels import grid
from dashboards.whatif.draw import FIGURE_CHOICES, HEIGHT
from pbkv.whatif.asked import DEFAULTS, FIELDS, MOST_TEXT, Field
from pbkv.whatif.choice import WEIGHED
from pbkv.whatif.words import NAMES

TABLE, KEPT = "wi", "wi-kept"
TABLE_HEIGHT = 420
_MEANING = "the recorded calls, replayed at every setting of a grid"
_ERRORS = "± the truth lies in the interval nine times in ten. Green and red: better and worse than the present by more than the error."
_COLUMNS = (
    grid.column("mark", "", width=54, minWidth=50, filter=False, sortable=False, tip="★ best, · no other is better in all three figures"),
    grid.column("setting", "Setting", width=230, tooltipField="setting"),
    *(
        grid.number_column(
            name, NAMES[name][0].upper() + NAMES[name][1:], f"{name}_text", width=132,
            cellClassRules={"cell-right": f"params.data.{name}_sign > 0", "cell-wrong": f"params.data.{name}_sign < 0"},
            tooltipField=f"{name}_tip",
        )
        for name in (*WEIGHED, "hit_device", "ttft_p50", "evicted_live")
    ),
)


_INPUT: dict[str | float | int, Any] = {"maxLength": MOST_TEXT, "spellCheck": False, "autoComplete": "off"}


def ident(field: str) -> dict[str, str]:
    """Id of a line of the form."""
    return {"type": "wi-field", "field": field}


def view(*, readonly: bool) -> Component:
    """The page without a result."""
    return html.Div(
        [
            dcc.Store(id="wi-live"),
            dmc.Paper([_head("What-if", "wi-basis", _MEANING), _form(), _actions(readonly)], className="panel"),
            html.Div("", id="wi-best", className="verdict", role="status"),
            dmc.Paper([_pickers(), _picture()], className="panel", id="wi-picture"),
            grid.frame(TABLE, "Settings", _ERRORS, _COLUMNS, TABLE_HEIGHT, csv=False, selectable=True),
            dmc.Paper([_head("Kept results", "wi-kept-summary", ""), html.Div(id="wi-kept", className="wi-kept")], className="panel"),
        ],
        className="whatif",
    )


def _head(title: str, summary: str, note: str) -> html.Div:
    return html.Div(
        [html.H2(title, className="panel-title"), html.Span(note, className="key"), html.Span("", id=summary, className="summary")],
        className="panel-head",
    )


def _form() -> html.Div:
    return html.Div([_line(name, field) for name, field in FIELDS.items()], className="wi-form")


def _line(name: str, field: Field) -> Component:
    return dmc.TextInput(
        id=ident(name), label=field.label, placeholder=field.example, value=DEFAULTS.get(name, ""), size="xs",
        inputProps=_INPUT,
    )


def _actions(readonly: bool) -> html.Div:
    stage = dmc.Button("Stage in the knob form", id="wi-stage", size="xs", variant="default", disabled=True)
    return html.Div(
        [
            dmc.Button("Run", id="wi-run", size="xs"),
            dmc.Button("Stop", id="wi-stop", size="xs", variant="default", disabled=True),
            *([] if readonly else [stage]),
            html.Div(dmc.Progress(id="wi-bar", value=0, size="sm"), className="wi-bar"),
            html.Div("", id="wi-note", className="wi-note", role="status"),
        ],
        className="wi-actions",
    )


def _pickers() -> html.Div:
    return html.Div(
        [
            dmc.SegmentedControl(id="wi-picture-kind", data=["curve", "map"], value="curve", size="xs"),
            dmc.Select(id="wi-figure", data=FIGURE_CHOICES, value=WEIGHED[0], size="xs", allowDeselect=False, **_aria("figure")),
            dmc.Select(id="wi-axis", data=[], size="xs", placeholder="axis", allowDeselect=False, **_aria("axis")),
            dmc.Select(id="wi-slice", data=[], size="xs", placeholder="which", allowDeselect=False, **_aria("map of")),
        ],
        className="wi-pickers",
    )


def _aria(label: str) -> dict[str, Any]:
    return {"aria-label": label}


def _picture() -> html.Div:
    return html.Div(
        [
            html.Div(
                dcc.Graph(
                    id="wi-graph",
                    figure={"data": [], "layout": {"height": HEIGHT}},
                    config={"displayModeBar": False, "responsive": True},
                    style={"height": HEIGHT},
                ),
                id="wi-graph-box",
            ),
            html.Div("Run a grid, or open a result that was kept.", id="wi-none", className="empty", style={"minHeight": 120}),
        ]
    )
