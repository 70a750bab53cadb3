"""The pictures of a grid: curves over pools, budgets and load, the map of gamma and K, and hit rate against TTFT against bytes moved."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pbkv.bench.svg import COLOURS, Line, legend, plot
from pbkv.knobs import Value
from pbkv.whatif.charts import Dot, heat, scatter
from pbkv.whatif.choice import WEIGHED
from pbkv.whatif.forecast import Estimate
from pbkv.whatif.lines import MOST_LINES, lines, maps, values
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.question import Found
from pbkv.whatif.report import Report, estimates_of
from pbkv.whatif.setting import Setting
from pbkv.whatif.table import said
from pbkv.whatif.units import shown
from pbkv.whatif.words import NAMES, brief

#: Policies keep their colour in all pictures; the bound is the colour of the text.
_FIXED = {"lru": "#8a8f98", "lae": "#5b8c5a", "session_lae": "#b5a642", "kvflow": "#E69F00", "kvflow_all": "#CC79A7", "he": "#2b86c8",
          "first_use": "#e0672f"}
_PALETTE = [colour for colour in COLOURS if colour not in ("#000000", "#999999", "#2F4F4F")]
#: Axis -> how its places are scaled, and the figures drawn over it; "miss" = prompt tokens not on the device.
_CURVES: dict[str, tuple[float, str, tuple[str, ...]]] = {
    "device_tokens": (1e3, "device tier, thousand tokens", ("miss", "ttft_p95")),
    "host_tokens": (1e3, "host tier, thousand tokens", ("hit", "ttft_p95", "moved_bytes")),
    "prefetch_budget": (float(1 << 20), "prefetch budget, MiB per decode step", ("ttft_p95", "moved_bytes", "hit")),
    "concurrency": (1.0, "workflows at a time", ("hit", "ttft_p95")),
    "gamma": (1.0, "gamma", ("hit", "ttft_p95")),
    "k": (1.0, "K", ("hit", "ttft_p95")),
}
#: Hit rates that the cache alone cannot better, by device tokens (pbkv.whatif.curves).
BoundCurve = Sequence[tuple[int, float]]


def found_of(report: Report) -> list[Found]:
    """The report's cells as curves take them."""
    return [Found(cell.setting, estimates_of(cell)) for cell in report.found]


def curves_over(report: Report, axis: str, bound: BoundCurve = ()) -> str:
    """A legend and a panel per figure of this axis as HTML; nothing for an axis with a single value."""
    cells, named = _drawn(report, axis)
    if axis not in values(cells):
        return ""
    factor, label, figures = _CURVES[axis]
    labels = list(dict.fromkeys(line.label for figure in figures for line in lines(cells, axis, _figure(figure))))
    looks = {name: _look(name, n) for n, name in enumerate(labels)}
    keys = [(name, colour, False) for name, colour in looks.items()]
    panels: list[str] = []
    for figure in figures:
        drawn = [_line(line.label, line.points, figure, factor, looks[line.label]) for line in lines(cells, axis, _figure(figure))]
        if figure == "miss" and bound:
            drawn.append(Line("bound", "currentColor", [x / factor for x, _ in bound], [100 * (1 - y) for _, y in bound], dashed=True))
            keys.append(("clairvoyant bound of the device tier alone", "currentColor", True))
        panels.append(plot(_title(figure), label, _unit(figure), drawn))
    return f"{legend(keys)}<p class=dim>{named}</p><div class=plots>{''.join(panels)}</div>"


def _drawn(report: Report, axis: str) -> tuple[list[Found], str]:
    """Cells that make no more curves than can be told apart: all of them, or per policy the best of the other settings."""
    cells = found_of(report)
    others = [name for name in values(cells) if name != axis]
    if math.prod(len(values(cells)[name]) for name in others) <= MOST_LINES:
        return cells, ""
    better, best = FIGURES[report.figure].better, dict[tuple[Value | None, Value | None], Found]()
    for cell in cells:
        key, mine = (cell.setting.policy, cell.setting.given.get(axis)), cell.estimates.get(report.figure)
        other = best.get(key)
        if mine is not None and (other is None or better * mine.value > better * other.estimates[report.figure].value):
            best[key] = Found(replace(cell.setting, **{name: None for name in others if name != "policy"}), cell.estimates)
    return list(best.values()), f"Each point: of the other settings the one with the best {NAMES[report.figure]}."


def _line(name: str, points: Sequence[tuple[float, Estimate]], figure: str, factor: float, colour: str) -> Line:
    xs, estimates = [x / factor for x, _ in points], [estimate for _, estimate in points]
    ys, low, high = ([_scaled(figure, getattr(e, part)) for e in estimates] for part in ("value", "low", "high"))
    return Line(name, colour, xs, ys, *((low, high) if low != high else ((), ())))


def _figure(figure: str) -> str:
    return "hit_device" if figure == "miss" else figure


def _title(figure: str) -> str:
    return "prompt tokens not found on the device" if figure == "miss" else NAMES[figure]


def _unit(figure: str) -> str:
    return {"share": "%", "s": "s", "bytes": "GiB"}[FIGURES[_figure(figure)].unit]


def _scaled(figure: str, value: float) -> float:
    if figure == "miss":
        return 100 * (1 - value)
    return value * {"share": 100.0, "s": 1.0, "bytes": 1 / (1 << 30)}[FIGURES[figure].unit]


def _look(label: str, number: int) -> str:
    return _FIXED.get(label) or _PALETTE[number % len(_PALETTE)]


def gamma_maps(report: Report) -> str:
    """Maps of gamma and K for every policy and pool; nothing where one of the two does not vary."""
    cells = found_of(report)
    if not {"gamma", "k"} <= values(cells).keys():
        return ""
    unit = FIGURES[report.figure].unit
    made: list[str] = []
    for label, found in maps(cells, "k", "gamma", report.figure).items():
        tiles = [[cell and (cell.value, shown(cell.value, unit).removesuffix(" %")) for cell in row] for row in found.cells]
        if any(tile != tiles[0][0] for row in tiles for tile in row):
            title = f"{NAMES[report.figure]}{', %' if unit == 'share' else ''}: {label or 'as recorded'}"
            made.append(heat(title, "gamma", "K", [said("gamma", x) for x in found.columns], [said("k", y) for y in found.rows], tiles))
    return f"<div class=plots>{''.join(made)}</div>" if made else ""


def pareto(report: Report) -> str:
    """Every setting as a dot, the present too: hit rate, TTFT, and bytes moved as its size; outlined where no other is better in all."""
    cells = [(n, setting, e) for n, (setting, e) in enumerate(report.weighed) if set(WEIGHED) <= e.keys()] if report.found else []
    most = max((e["moved_bytes"].value for _, _, e in cells), default=0.0)
    looks = {name: _look(name, n) for n, name in enumerate(dict.fromkeys(_policy(setting) for _, setting, _ in cells))}
    front = report.front
    dots = [
        Dot(
            100 * e["hit"].value, e["ttft_p95"].value, e["moved_bytes"].value / most if most else 0.0,
            f"{brief(setting)}: {figures_said(e)}", looks[_policy(setting)], n in front,
        )
        for n, setting, e in cells
    ]
    picture = scatter("hit rate against TTFT against bytes moved", "hit rate, %", "TTFT p95, s", dots)
    keys = legend([(name, colour, False) for name, colour in looks.items()])
    caption = "<p class=dim>Large dots move more bytes. No other setting beats an outlined one in all three.</p>"
    return f"{keys}{caption}<div class=plots>{picture}</div>" if dots else ""


def _policy(setting: Setting) -> str:
    return setting.policy or "as recorded"


def figures_said(estimates: Mapping[str, Estimate]) -> str:
    """The figures a setting is weighed by."""
    return ", ".join(f"{NAMES[name]} {shown(estimates[name].value, FIGURES[name].unit)}" for name in WEIGHED)


def curve_axes() -> tuple[str, ...]:
    """Axes that curves are drawn over, in order."""
    return tuple(_CURVES)
