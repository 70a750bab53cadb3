"""The knob card over a recording: the last value on record of every knob that was changed."""

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component

from collector.views.models import KnobChange
from dashboards.format import number


def rows(changes: Sequence[KnobChange]) -> list[Component]:
    """One line per knob, in the order of their last changes. `changes` are newest first."""
    last: dict[str, KnobChange] = {}
    for change in changes:
        last.setdefault(change.name, change)
    return [_row(c) for c in last.values()]


def _row(change: KnobChange) -> Component:
    return html.Div(
        [
            html.Div([html.Span(change.name, className="knob-name"), html.Span(change.new, className="knob-now")], className="knob-line"),
            html.Div(f"version {change.version}, since step {number(change.step)}, by {change.actor}", className="knob-meaning"),
        ],
        className="knob-row",
    )
