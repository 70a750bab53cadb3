"""Curves, maps and table rows of a result."""

from collections.abc import Sequence
from typing import Any

from dashboards.figure import Figure, axis, figure
from dashboards.format import size
from dashboards.palette import Palette
from dashboards.panels.grid import Row
from pbkv.whatif.choice import WEIGHED, undominated
from pbkv.whatif.forecast import Estimate
from pbkv.whatif.lines import Line, Map, lines, maps, numeric_axes
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.question import Found
from pbkv.whatif.results import Result
from pbkv.whatif.units import count, shown
from pbkv.whatif.winner import choice_of
from pbkv.whatif.words import NAMES, brief, give_or_take, interval, verdict

FIGURE_CHOICES = [{"value": name, "label": NAMES[name]} for name in NAMES]
HEIGHT = 340
#: Rows sent to a page.
MOST_ROWS = 500


def colours(palette: Palette) -> tuple[str, ...]:
    """One per curve."""
    p = palette
    return (p.active, p.retired, p.device, p.host, p.late, p.locked, p.text, p.neutral)


def axes_of(cells: Sequence[Found], kind: str) -> list[dict[str, str]]:
    """What the picker of axes offers: an axis for curves, a pair for maps."""
    names = numeric_axes(cells)
    if kind == "curve":
        return [{"value": name, "label": f"over {said(name)}"} for name in names]
    pairs = sorted(((a, b) for n, b in enumerate(names) for a in names[n + 1 :]), key=lambda pair: pair != ("k", "gamma"))
    return [{"value": f"{a} {b}", "label": f"{said(a)} by {said(b)}"} for a, b in pairs]


def said(name: str) -> str:
    """An axis in words."""
    return name.replace("_", " ")


def curve(cells: Sequence[Found], over: str, name: str, palette: Palette) -> Figure | None:
    """A curve per combination of the other fields, with the error of every point."""
    found = lines(cells, over, name)
    if not found:
        return None
    places = _ticks(found)
    traces = [_trace(line, colour, name, over) for line, colour in zip(found, colours(palette), strict=False)]
    return figure(
        palette, traces, height=HEIGHT, showlegend=True, hovermode="closest", margin={"l": 72, "r": 14, "t": 10, "b": 46},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 12}},
        xaxis=axis(palette, title={"text": said(over), "standoff": 8}, tickvals=places, ticktext=[amount(over, x) for x in places]),
        yaxis=axis(palette, title={"text": NAMES[name], "standoff": 10}, **_scale(name)),
    )


def _trace(line: Line, colour: str, name: str, over: str) -> dict[str, Any]:
    values = [e for _, e in line.points]
    return {
        "type": "scatter", "mode": "lines" if line.flat else "lines+markers", "name": line.label, "x": [x for x, _ in line.points],
        "y": [e.value for e in values], "line": {"color": colour, "width": 2, "dash": "dot" if line.flat else "solid"},
        "error_y": {
            "type": "data", "symmetric": False, "array": [e.high - e.value for e in values],
            "arrayminus": [e.value - e.low for e in values], "visible": not line.flat, "color": colour, "thickness": 1, "width": 3,
        },
        "text": [f"{line.label}<br>{amount(over, x)}: {_with_error(name, e)}" for x, e in line.points], "hoverinfo": "text",
    }


def _ticks(found: Sequence[Line]) -> list[float]:
    places = sorted({x for line in found for x, _ in line.points})
    return places if len(places) <= 12 else places[:: -(-len(places) // 12)]


def _scale(name: str) -> dict[str, Any]:
    unit = FIGURES[name].unit
    return {"share": {"tickformat": ".1%"}, "s": {"ticksuffix": " s"}, "bytes": {"exponentformat": "SI", "ticksuffix": "B"}}.get(unit, {})


def slices_of(cells: Sequence[Found], pair: str, name: str) -> dict[str, Map]:
    """The maps of a pair of axes, by what else they are of."""
    row, _, column = pair.partition(" ")
    return maps(cells, row, column, name)


def heat(found: Map, pair: str, name: str, palette: Palette) -> Figure:
    """A map; what is better is brighter, and the number stands in every cell."""
    row, _, column = pair.partition(" ")
    better = FIGURES[name].better or 1
    texts = [["" if e is None else shown(e.value, FIGURES[name].unit) for e in line] for line in found.cells]
    trace = {
        "type": "heatmap", "z": [[None if e is None else better * e.value for e in line] for line in found.cells],
        "x": [amount(column, float(v)) for v in found.columns], "y": [amount(row, float(v)) for v in found.rows], "xgap": 2, "ygap": 2,
        "text": texts, "texttemplate": "%{text}", "hovertext": [[_with_error(name, e) if e else "" for e in line] for line in found.cells],
        "hoverinfo": "text", "showscale": False, "colorscale": [[0, palette.grid], [1, palette.active]],
        "textfont": {"color": palette.text},
    }
    return figure(
        palette, [trace], height=HEIGHT, margin={"l": 72, "r": 14, "t": 10, "b": 46},
        xaxis=axis(palette, type="category", title={"text": said(column), "standoff": 8}),
        yaxis=axis(palette, type="category", title={"text": said(row), "standoff": 10}),
    )


def amount(name: str, value: float) -> str:
    """A value of an axis."""
    return size(value) if name == "prefetch_budget" else count(value) if value >= 100 else f"{value:g}"


def _with_error(name: str, e: Estimate) -> str:
    error = give_or_take(name, e)
    return f"{shown(e.value, FIGURES[name].unit)}{f' ±{error}' if error else ''} ({verdict(name, e)[0]})"


def rows(result: Result) -> list[Row]:
    """The table: a row per setting."""
    choice, front = choice_of(result), set(undominated([cell.estimates for cell in result.cells], WEIGHED))
    best = choice.place if choice else -1
    return [_row(n, cell, "★" if n == best else "·" if n in front else "") for n, cell in enumerate(result.cells[:MOST_ROWS])]


def _row(n: int, cell: Found, mark: str) -> Row:
    row: Row = {"id": str(n), "mark": mark, "setting": brief(cell.setting) + (f": {cell.refused}" if cell.refused else "")}
    for name in (*WEIGHED, "hit_device", "ttft_p50", "evicted_live"):
        estimate = cell.estimates.get(name)
        row |= {name: None, f"{name}_text": "–", f"{name}_sign": 0, f"{name}_tip": ""}
        if estimate is not None:
            words, sign = verdict(name, estimate)
            error = give_or_take(name, estimate)
            text = shown(estimate.value, FIGURES[name].unit) + (f" ±{error}" if error else "")
            tip = f"{interval(name, estimate)}, present {shown(estimate.present, FIGURES[name].unit)}: {words}"
            row |= {name: estimate.value, f"{name}_text": text, f"{name}_sign": sign, f"{name}_tip": tip}
    return row
