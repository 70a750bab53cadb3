"""A figure over an axis of the grid, a curve per combination of the others, with the error at every point."""

from collections.abc import Sequence

from rich.text import Text
from textual_plot import AxisFormatter, HiResMode, PlotWidget

from console.top.palette import ACTIVE, DEVICE, HOST, LOCKED, MUTED, RETIRED, TEXT, WARN
from pbkv.whatif.lines import Line
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.units import count, shown, size

MOST_TICKS = 6
COLOURS = (ACTIVE, RETIRED, DEVICE, HOST, WARN, LOCKED, TEXT, MUTED)


class _Ticks(AxisFormatter):
    """Ticks at the values given, else five; labelled as the figure or the axis is."""

    def __init__(self, name: str, at: Sequence[float] = ()) -> None:
        super().__init__()
        self._name, self._at = name, list(at) if len(at) <= MOST_TICKS else []

    def get_ticks(self, min_: float, max_: float, max_ticks: int = 8) -> list[float]:
        return self._at or [min_ + (max_ - min_) * part / 4 for part in range(5)]

    def get_labels_for_ticks(self, ticks: object) -> list[str]:
        assert isinstance(ticks, list)
        return [label(self._name, float(tick)) for tick in ticks]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def label(name: str, value: float) -> str:
    """A value of a figure or an axis, in a few characters."""
    if name in FIGURES:
        return shown(value, FIGURES[name].unit)
    return size(value) if name == "prefetch_budget" else count(value) if value >= 100 else f"{value:g}"


class Curve(PlotWidget, can_focus=False):
    """The picture; its legend is `legend`."""

    def __init__(self) -> None:
        super().__init__(id="grid-curve", allow_pan_and_zoom=False)

    def on_mount(self) -> None:
        self.margin_top, self.margin_bottom, self.margin_left = 0, 2, 10

    def draw(self, lines: Sequence[Line], axis: str, figure: str) -> None:
        """Replace what is drawn."""
        self.clear()
        points = [point for line in lines for point in line.points]
        if not points:
            return
        self.set_x_formatter(_Ticks(axis, sorted({x for x, _ in points})))
        self.set_y_formatter(_Ticks(figure))
        self.set_xlimits(*_limits([x for x, _ in points]))
        self.set_ylimits(*_limits([v for _, e in points for v in (e.low, e.high)]))
        for line, colour in zip(lines, COLOURS, strict=False):
            self.plot([x for x, _ in line.points], [e.value for _, e in line.points], colour, HiResMode.BRAILLE)
            for x, e in () if line.flat else line.points:
                self.plot([x, x], [e.low, e.high], colour, HiResMode.BRAILLE)


def legend(lines: Sequence[Line], width: int) -> Text:
    """One line; what does not fit is counted."""
    text = Text()
    for n, (line, colour) in enumerate(zip(lines, COLOURS, strict=False)):
        part = Text.assemble(("━ ", f"bold {colour}"), (line.label + ("  " if n < len(lines) - 1 else ""), TEXT))
        if text.cell_len + part.cell_len > width - 8:
            return text.append(f"+{len(lines) - n} more", MUTED)
        text.append_text(part)
    return text


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """A little room on both sides, also where all values are one."""
    low, high = min(values), max(values)
    room = (high - low) * 0.04 or abs(high) * 0.05 or 1.0
    return low - room, high + room
