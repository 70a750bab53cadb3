"""Present and forecast side by side, with the interval, and in words whether the difference is more than its error."""

from typing import NamedTuple

from rich.text import Text
from textual.widget import Widget

from console.top.guard import Guarded
from console.top.palette import ACTIVE, BAD, FAINT, GOOD, MUTED, TEXT
from pbkv.whatif.forecast import Estimate, Residual
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.question import Answer, Found
from pbkv.whatif.setting import Setting
from pbkv.whatif.units import change, shown
from pbkv.whatif.words import NAMES, interval, verdict


class _Widths(NamedTuple):
    name: int
    number: int
    range: int
    change: int
    words: int
    scale: int


_NARROW = _Widths(15, 10, 16, 10, 16, 0)
_WIDE = _Widths(18, 13, 22, 13, 18, 40)
_WIDE_AT = 120


class FigureTable(Guarded, Widget):
    """As many figures as fit, what matters most first."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._answer, self._moved = Answer(), False

    def show(self, answer: Answer, *, moved: bool) -> None:
        """`moved`: something is staged, so there is something to compare."""
        self._answer, self._moved = answer, moved
        self.refresh()

    def render(self) -> Text:
        present = self._answer.present
        width, height = self.content_size.width, max(self.content_size.height, 2)
        if present is None:
            return Text()
        w = _WIDE if width >= _WIDE_AT else _NARROW
        residuals = {residual.figure: residual for residual in present.residuals}
        estimates = (self._answer.found[0] if self._moved and self._answer.found else Found(Setting())).estimates
        lines = [_head(w, moved=self._moved)]
        names = [name for name in NAMES if name in present.figures]
        lines += [_line(w, name, present.figures[name], estimates.get(name), residuals.get(name)) for name in names]
        for line in lines[:height]:
            line.truncate(width)
        return Text("\n").join(lines[:height])


def _head(w: _Widths, *, moved: bool) -> Text:
    head = f"{'':<{w.name}}{'present':>{w.number}}"
    if not moved:
        return Text(head, MUTED)
    scale = f"{'● present, ━ nine in ten':<{w.scale}}" if w.scale else ""
    return Text(f"{head}{'forecast':>{w.number}}{'nine in ten':>{w.range}}{'change':>{w.change}} {'':<{w.words}}{scale}", MUTED)


def _line(w: _Widths, name: str, now: float, estimate: Estimate | None, residual: Residual | None) -> Text:
    unit = FIGURES[name].unit
    line = Text.assemble((f"{NAMES[name]:<{w.name}}", TEXT), (f"{shown(now, unit):>{w.number}}", TEXT))
    if estimate is None:
        off = f"replayed with an error of {change(residual.error, unit)}" if residual is not None and residual.error else ""
        return line.append(f"   {off}", MUTED)
    words, sign = verdict(name, estimate)
    colour = {1: GOOD, -1: BAD, 0: MUTED}[sign]
    line.append(f"{shown(estimate.value, unit):>{w.number}}", f"bold {TEXT}").append(f"{interval(name, estimate):>{w.range}}", MUTED)
    by = change(estimate.change, unit) if estimate.change else ""
    line.append(f"{by:>{w.change}} {words:<{w.words}}", colour if sign else TEXT if estimate.certain else MUTED)
    return line.append_text(scale(estimate, w.scale, colour)) if w.scale else line


def scale(estimate: Estimate, width: int, colour: str) -> Text:
    """The interval as a bar and the present as a dot, on one scale with a little room at both ends."""
    low, high = min(estimate.low, estimate.present), max(estimate.high, estimate.present)
    room = (high - low) * 0.05 or 1.0

    def place(value: float) -> int:
        return round((value - low + room) / (high - low + 2 * room) * (width - 1))

    marks = [("─", FAINT)] * width
    for n in range(place(estimate.low), place(estimate.high) + 1):
        marks[n] = ("━", colour)
    marks[place(estimate.value)] = ("╋", colour)
    marks[place(estimate.present)] = ("●", ACTIVE)
    return Text.assemble(*marks)
