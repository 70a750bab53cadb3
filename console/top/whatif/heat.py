"""A figure over two axes: darker is worse, the best cell is marked, and the number stands in every cell that has room for it."""

from rich.style import Style
from rich.text import Text

from console.top.palette import MUTED, TEXT
from console.top.whatif.curve import label
from pbkv.whatif.lines import Map
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.units import shown

#: From worst to best, dark enough for white digits.
SCALE = ("#1d2430", "#1e3347", "#1f425d", "#1f5273", "#1e6289", "#1a73a0", "#1584b8")
_LEFT, _CELL = 8, 10


def draw(found: Map, row: str, column: str, figure: str, width: int, height: int) -> Text:
    """Rows downwards, columns rightwards, as many as fit."""
    values = [e.value for line in found.cells for e in line if e is not None]
    if not values:
        return Text("nothing to show for this figure", MUTED)
    better = FIGURES[figure].better or 1
    worst, best = min(better * v for v in values), max(better * v for v in values)
    across = max(1, (width - _LEFT) // _CELL)
    text = Text(f"{row + ' ↓':<{_LEFT}}" + f"{column} →\n", MUTED)
    text.append(" " * _LEFT + "".join(f"{label(column, float(v)):^{_CELL}}" for v in found.columns[:across]) + "\n", MUTED)
    for name, line in list(zip(found.rows, found.cells, strict=True))[: max(height - 3, 1)]:
        text.append(f"{label(row, float(name)):<{_LEFT}}", MUTED)
        for e in line[:across]:
            if e is None:
                text.append(f"{'–':^{_CELL}}", MUTED)
                continue
            at = 1.0 if best == worst else (better * e.value - worst) / (best - worst)
            mark = "★" if better * e.value == best else " "
            style = Style(color=TEXT, bgcolor=SCALE[round(at * (len(SCALE) - 1))], bold=at == 1.0)
            text.append(f"{mark + shown(e.value, FIGURES[figure].unit):^{_CELL}}", style)
        text.append("\n")
    left = len(found.columns) - across
    return text.append(f"{left} more columns: a wider terminal shows them" if left > 0 else "", MUTED)
