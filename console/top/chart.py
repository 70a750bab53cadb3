"""Bars, sparklines and stacked areas out of block characters, as Rich text. Pure functions of numbers and a width."""

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

from console.top.palette import FAINT

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_LEFT = " ▏▎▍▌▋▊▉█"


def cells(values: Sequence[float], width: int) -> list[int]:
    """How many of `width` cells each value gets. They add up to `width`; what is not zero gets at least one cell while there is room."""
    total = sum(values)
    if total <= 0 or width <= 0:
        return [0] * len(values)
    exact = [v / total * width for v in values]
    result = [max(int(e), 1 if v > 0 else 0) for e, v in zip(exact, values, strict=True)]
    while (left := width - sum(result)) > 0:
        result[max((i for i, v in enumerate(values) if v > 0), key=lambda i: exact[i] - result[i])] += 1
    for _ in range(-left):
        # The largest surplus gives way; a last cell only when nobody has two.
        result[max((i for i, n in enumerate(result) if n), key=lambda i: (result[i] > 1, result[i] - exact[i]))] -= 1
    return result


def stacked_bar(parts: Sequence[tuple[float, str]], width: int) -> Text:
    """One line of `width` cells split among (value, colour) parts; all zero gives an empty track."""
    counts = cells([v for v, _ in parts], width)
    if not sum(counts):
        return Text("▇" * max(width, 0), FAINT)
    return Text.assemble(*(("▇" * n, colour) for n, (_, colour) in zip(counts, parts, strict=True)))


def share_bar(share: float | None, width: int, colour: str) -> Text:
    """A bar filled to `share` of 1, to an eighth of a cell, on a faint track."""
    eighths = round(min(max(share or 0.0, 0.0), 1.0) * width * 8)
    full, part = divmod(eighths, 8)
    bar = Text("█" * full, colour)
    if part:
        bar.append(_LEFT[part], Style(color=colour, bgcolor=FAINT))
    rest = width - full - (1 if part else 0)
    return bar.append(" " * rest, Style(bgcolor=FAINT))


def spark(values: Sequence[float | None], colour: str, top: float = 1.0) -> Text:
    """One character per value, 0..top; None leaves a gap."""
    def mark(value: float | None) -> str:
        if value is None or top <= 0:
            return " "
        return _EIGHTHS[max(1, round(min(value / top, 1.0) * 8))]

    return Text("".join(mark(v) for v in values), colour)


def area(columns: Sequence[Sequence[float] | None], colours: Sequence[str], height: int) -> list[Text]:
    """Stacked areas, `height` lines from the top. A column holds shares of 1 from the bottom up, one per colour; None is a gap."""
    drawn = [_column(shares, colours, height) if shares is not None else [(" ", Style())] * height for shares in columns]
    return [Text.assemble(*(column[row] for column in drawn)) for row in range(height)]


def _column(shares: Sequence[float], colours: Sequence[str], height: int) -> list[tuple[str, Style]]:
    edges: list[int] = []
    level = 0.0
    for share in shares:
        level += share
        edges.append(round(level * height * 8))
    return [_cell(edges, colours, (height - 1 - row) * 8) for row in range(height)]


def _cell(edges: Sequence[int], colours: Sequence[str], base: int) -> tuple[str, Style]:
    """The cell of eighths base..base+8: the colour at its foot, up to the first edge inside, then the colour above that edge."""
    below = next((i for i, edge in enumerate(edges) if edge > base), None)
    if below is None:
        return " ", Style()
    edge = edges[below]
    if edge >= base + 8:
        return "█", Style(color=colours[below])
    above = next((i for i in range(below + 1, len(edges)) if edges[i] > edge), None)
    return _EIGHTHS[edge - base], Style(color=colours[below], bgcolor=colours[above] if above is not None else None)


def hold(points: Sequence[tuple[float, Sequence[float]]], width: int) -> list[Sequence[float] | None]:
    """Points (place 0..1 in the range, values) as `width` columns: the last point of a column counts, and is held until the next."""
    columns: list[Sequence[float] | None] = [None] * width
    for place, values in points:
        columns[min(max(int(place * width), 0), width - 1)] = values
    # A range seldom begins exactly at a point: a short stretch before the first one is drawn like it.
    first = next((i for i, c in enumerate(columns) if c is not None), width)
    seen = columns[first] if first <= width // 12 else None
    for i, column in enumerate(columns):
        seen = column if column is not None else seen
        columns[i] = seen
    return columns
