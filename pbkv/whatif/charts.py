"""Maps and scatter plots as SVG beside the line plots of pbkv.bench.svg: same size, same classes, equal bytes for equal figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil

from pbkv.bench.svg import ticks

_W, _H = 380, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 28, 40
_WIDTH, _HEIGHT = _W - _LEFT - _RIGHT, _H - _TOP - _BOTTOM
#: Room for a label under a column, and for the text of a tile.
_LABEL, _TILE_W, _TILE_H = 34, 30, 11
#: A tile's value and its text; None = unknown.
Tile = tuple[float, str] | None


def heat(title: str, x_label: str, y_label: str, xs: Sequence[str], ys: Sequence[str], tiles: Sequence[Sequence[Tile]]) -> str:
    """A map: `tiles[row][column]`, rows from the bottom up. The colour grows from the least value to the largest."""
    known = [tile[0] for row in tiles for tile in row if tile is not None]
    if not known:
        return ""
    low, span = min(known), max(known) - min(known)
    width, height = _WIDTH / len(xs), _HEIGHT / len(ys)
    parts = _frame(title, x_label, y_label)
    for n, row in enumerate(tiles):
        y = _H - _BOTTOM - (n + 1) * height
        parts.append(_text(_LEFT - 5, y + height / 2 + 3, "y", ys[n]))
        for m, tile in enumerate(row):
            if tile is not None:
                where = f"{x_label} {xs[m]}, {y_label} {ys[n]}: {tile[1]}"
                parts.append(_tile(_LEFT + m * width, y, width, height, (tile[0] - low) / span if span else 0.5, tile[1], where))
    every = ceil(_LABEL / width)
    parts += [_text(_LEFT + (m + 0.5) * width, _H - _BOTTOM + 14, "x", x) for m, x in enumerate(xs) if m % every == 0]
    return "".join((*parts, "</svg>"))


def _tile(x: float, y: float, width: float, height: float, share: float, text: str, title: str) -> str:
    """The more, the stronger; with its text where there is room for it."""
    label = _text(x + width / 2, y + height / 2 + 3, "x m1" if share > 0.55 else "x m0", text)
    return (
        f'<g><title>{escape(title)}</title><rect x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{width - 1:.1f}" height="{height - 1:.1f}" '
        f'class="h" fill-opacity="{0.06 + 0.94 * share:.3f}"/>{label if width > _TILE_W and height > _TILE_H else ""}</g>'
    )


@dataclass(frozen=True)
class Dot:
    """A setting. `weight`: its size, 0 to 1; `marked` ones are outlined."""

    x: float
    y: float
    weight: float
    title: str
    colour: str
    marked: bool = False


@dataclass(frozen=True)
class _Scale:
    """From a value to its place: `low` is at `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def scatter(title: str, x_label: str, y_label: str, dots: Sequence[Dot]) -> str:
    """Dots over two linear axes, small ones in front of large ones, marked ones in front of all; nothing for none."""
    if not dots:
        return ""
    x_ticks, y_ticks = ticks(min(d.x for d in dots), max(d.x for d in dots)), ticks(min(d.y for d in dots), max(d.y for d in dots))
    x, y = _Scale(x_ticks[0], x_ticks[-1], _LEFT, _W - _RIGHT), _Scale(y_ticks[0], y_ticks[-1], _H - _BOTTOM, _TOP)
    parts = _frame(title, x_label, y_label)
    for tick in y_ticks:
        parts += [f'<path d="M{_LEFT} {y.at(tick):.1f}H{_W - _RIGHT}" class="g"/>', _text(_LEFT - 5, y.at(tick) + 3, "y", f"{tick:g}")]
    parts += [_text(x.at(tick), _H - _BOTTOM + 14, "x", f"{tick:g}") for tick in x_ticks]
    parts += [_dot(dot, x.at(dot.x), y.at(dot.y)) for dot in sorted(dots, key=lambda dot: (dot.marked, -dot.weight))]
    return "".join((*parts, "</svg>"))


def _dot(dot: Dot, x: float, y: float) -> str:
    edge = ' class="f"' if dot.marked else ""
    circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 + 7 * dot.weight:.1f}" fill="{dot.colour}" fill-opacity=".65"{edge}/>'
    return f"<g><title>{escape(dot.title)}</title>{circle}</g>"


def _text(x: float, y: float, kind: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _frame(title: str, x_label: str, y_label: str) -> list[str]:
    middle = (_TOP + _H - _BOTTOM) / 2
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_W} {_H}" role="img" aria-label="{escape(title, quote=True)}">',
        _text(_W / 2, 15, "t", title), _text((_LEFT + _W - _RIGHT) / 2, _H - 8, "l", x_label),
        f'<text transform="translate(12 {middle:g}) rotate(-90)" class="l">{escape(y_label)}</text>',
    ]
