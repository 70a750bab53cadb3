"""Pieces of plotly figures as plain dictionaries: one look, one hover, one time axis for all panels."""

from collections.abc import Sequence
from typing import Any

from dashboards.format import axis_time
from dashboards.palette import Palette
from dashboards.scene import Scene

Figure = dict[str, Any]
#: Ticks of an axis of shares.
PERCENTS = [0, 25, 50, 75, 100]
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


def axis(palette: Palette, **more: Any) -> dict[str, Any]:
    """An axis with quiet lines; callers add range, format and title."""
    return {
        "gridcolor": palette.grid,
        "zeroline": False,
        "linecolor": palette.border,
        "tickcolor": palette.border,
        "automargin": False,
        "fixedrange": True,
        "tickfont": {"size": 11},
        **more,
    }


def figure(palette: Palette, data: Sequence[dict[str, Any]], **layout: Any) -> Figure:
    """Traces in the common layout. Legends are HTML in the panel header, never inside the plot."""
    return {
        "data": list(data),
        "layout": {
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "showlegend": False,
            "autosize": True,
            "font": {"family": FONT, "size": 12, "color": palette.muted},
            "margin": {"l": 48, "r": 14, "t": 10, "b": 26},
            "hoverlabel": {"bgcolor": palette.panel, "bordercolor": palette.border, "font": {"color": palette.text, "size": 12}},
            "uirevision": "keep",
            "bargap": 0.35,
            **layout,
        },
    }


def over_time(scene: Scene, data: Sequence[dict[str, Any]], yaxis: dict[str, Any], top: float) -> Figure:
    """Traces over the shared time axis with the knob changes marked at height `top`."""
    palette = scene.palette
    return figure(
        palette,
        [*data, *_knob_marks(scene, top)],
        hovermode="x unified",
        shapes=_knob_lines(scene),
        xaxis=axis(
            palette, type="date", range=scene.span, nticks=6, showgrid=False, tickformat=_tick_format(scene), hoverformat="%H:%M:%S"
        ),
        yaxis=axis(palette, **yaxis),
    )


def _tick_format(scene: Scene) -> str:
    return "%H:%M:%S" if scene.overview.window_s <= 300 else "%H:%M"


def _knob_lines(scene: Scene) -> list[dict[str, Any]]:
    line = {"color": scene.palette.knob, "width": 1, "dash": "dot"}
    return [
        {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": line, "opacity": 0.7}
        for x in (axis_time(group[0].t, scene.zone) for group in scene.changes)
    ]


def _knob_marks(scene: Scene, top: float) -> list[dict[str, Any]]:
    """Hoverable marks: what changed, by whom, at which step. Absent without changes, so no empty trace costs a hover row."""
    groups = scene.changes
    if not groups:
        return []
    texts = [
        f"knobs v{g[0].version}: " + ", ".join(f"{c.name} {c.old} → {c.new}" for c in g) + f" · {g[0].actor} · step {g[0].step:,}"
        for g in groups
    ]
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [axis_time(g[0].t, scene.zone) for g in groups],
            "y": [top] * len(groups),
            "marker": {"symbol": "triangle-down", "size": 10, "color": scene.palette.knob},
            "cliponaxis": False,
            "customdata": texts,
            "hovertemplate": "%{customdata}<extra></extra>",
            "name": "knob change",
        }
    ]


def area(x: Sequence[str], y: Sequence[float], name: str, color: str, hover: str, opacity: float = 0.75) -> dict[str, Any]:
    """One layer of a stacked area."""
    return {
        "type": "scatter",
        "mode": "lines",
        "stackgroup": "one",
        "x": list(x),
        "y": list(y),
        "name": name,
        "line": {"width": 1, "color": color},
        "fillcolor": _alpha(color, opacity),
        "hovertemplate": hover + "<extra>" + name + "</extra>",
    }


def _alpha(color: str, opacity: float) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def hbar(
    labels: Sequence[str], values: Sequence[float], name: str, colors: str | list[str], texts: Sequence[str], hover: Sequence[str]
) -> dict[str, Any]:
    """Horizontal bars with the value written beside them."""
    return {
        "type": "bar",
        "orientation": "h",
        "y": list(labels),
        "x": list(values),
        "name": name,
        "marker": {"color": colors},
        "text": list(texts),
        "textposition": "outside",
        "cliponaxis": False,
        "constraintext": "none",
        "customdata": list(hover),
        "hovertemplate": "%{customdata}<extra></extra>",
        "textfont": {"size": 11},
    }
