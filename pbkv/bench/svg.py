"""Line plots as SVG, without a library: small, readable in any browser, equal bytes for equal figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_W, _H = 380, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 26, 38
#: Colours that people with red-green blindness can tell apart (Okabe and Ito), then greys.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#7A5195", "#8B4513", "#2F4F4F", "#B0B000",
)


@dataclass(frozen=True)
class Line:
    """One curve; `low` and `high` span a band around it. Points in order of x."""

    name: str
    colour: str
    xs: Sequence[float]
    ys: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dashed: bool = False


def plot(title: str, x_label: str, y_label: str, lines: Sequence[Line]) -> str:
    """One panel as an <svg> element. Axes are linear and hold every point and band."""
    xs = [x for line in lines for x in line.xs]
    ys = [y for line in lines for y in (*line.ys, *line.low, *line.high)]
    if not xs:
        return ""
    x_ticks, y_ticks = ticks(min(xs), max(xs)), ticks(min(ys), max(ys))
    x0, x1 = (min(xs), max(xs)) if max(xs) > min(xs) else (x_ticks[0], x_ticks[-1])
    place = _Place(x0, x1, y_ticks[0], y_ticks[-1])
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_W} {_H}" role="img" aria-label="{escape(title, quote=True)}">']
    parts.append(f'<text x="{_W / 2:g}" y="15" class="t">{escape(title)}</text>')
    parts += [_grid(place.y(y), f"{y:g}") for y in y_ticks]
    parts += [f'<text x="{place.x(x):.1f}" y="{_H - _BOTTOM + 14}" class="x">{x:g}</text>' for x in x_ticks if x0 <= x <= x1]
    parts.append(f'<text x="{_W / 2:g}" y="{_H - 8}" class="l">{escape(x_label)}</text>')
    parts.append(f'<text transform="translate(11 {_H / 2:g}) rotate(-90)" class="l">{escape(y_label)}</text>')
    parts += [_band(line, place) for line in lines if line.low]
    parts += [_curve(line, place) for line in lines]
    return "".join((*parts, "</svg>"))


def legend(lines: Sequence[tuple[str, str, bool]]) -> str:
    """Names beside their colours, as HTML; (name, colour, dashed)."""
    keys = (
        f'<span class="k"><i style="border-top:2px {"dashed" if dashed else "solid"} {colour}"></i>{escape(name)}</span>'
        for name, colour, dashed in lines
    )
    return f'<p class="keys">{"".join(keys)}</p>'


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers that span low to high, or surround them where they are (nearly) the same."""
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-3):
        low, high = low - 0.5 * max(abs(low), 1.0), high + 0.5 * max(abs(high), 1.0)
    span = high - low
    exponent = 0
    while 10.0**exponent > span / 5:
        exponent -= 1
    while 10.0 ** (exponent + 1) <= span / 5:
        exponent += 1
    step = next(m * 10.0**exponent for m in (1, 2, 2.5, 5, 10) if m * 10.0**exponent >= span / 5)
    first = int(low // step)
    last = -int(-high // step)
    return [round(n * step, 10) for n in range(first, max(last, first + 1) + 1)]


@dataclass(frozen=True)
class _Place:
    """Where values are on the picture."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        return _LEFT + (value - self.x0) / (self.x1 - self.x0) * (_W - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _H - _BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (_H - _TOP - _BOTTOM)


def _grid(y: float, label: str) -> str:
    return f'<path d="M{_LEFT} {y:.1f}H{_W - _RIGHT}" class="g"/><text x="{_LEFT - 4}" y="{y + 3:.1f}" class="y">{label}</text>'


def _curve(line: Line, place: _Place) -> str:
    points = [(place.x(x), place.y(y)) for x, y in zip(line.xs, line.ys, strict=True)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 3"' if line.dashed else ""
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{line.colour}"/>' for x, y in points)
    return f'<g><title>{escape(line.name)}</title><path d="M{path}" stroke="{line.colour}" class="c"{dash}/>{dots}</g>'


def _band(line: Line, place: _Place) -> str:
    top = [f"{place.x(x):.1f} {place.y(y):.1f}" for x, y in zip(line.xs, line.high, strict=True)]
    bottom = [f"{place.x(x):.1f} {place.y(y):.1f}" for x, y in zip(line.xs, line.low, strict=True)]
    return f'<path d="M{"L".join((*top, *reversed(bottom)))}Z" fill="{line.colour}" class="b"/>'
