"""The list of knobs on the Tune screen: in force, and as staged."""

import textwrap
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget

from console.top.format import fit, knob_value
from console.top.guard import Guarded
from console.top.palette import ACTIVE, CURSOR, MUTED, TEXT, WARN
from console.top.stage import Stage
from pbkv.knobs import KNOBS
from pbkv.whatif.setting import KNOB_FIELDS

_NAME, _VALUE = 17, 15


class StagedKnobs(Guarded, Widget, can_focus=True):
    """One line per knob that is part of a forecast; `selected` is under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("up", "go(-1)", show=False), Binding("down", "go(1)", show=False)]

    def __init__(self, stage: Stage, *, id: str) -> None:
        super().__init__(id=id)
        self._stage = stage
        self._names = [name for name in KNOB_FIELDS if name in stage.base]
        self._at = 0

    @property
    def selected(self) -> str:
        """Name of the knob under the cursor."""
        return self._names[self._at]

    def select(self, name: str) -> None:
        """Put the cursor on a knob; one that is not in the list leaves it."""
        if name in self._names:
            self._at = self._names.index(name)
            self.refresh()

    def action_go(self, step: int) -> None:
        self._at = (self._at + step) % len(self._names)
        self.refresh()

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(self._names) + 1

    def render(self) -> Text:
        width = self.content_size.width
        head = Text(f"  {'knob':<{_NAME}}{'in force':<{_VALUE}}{'staged':<{_VALUE}}", MUTED)
        return Text("\n").join([head, *(self._line(n, name, width) for n, name in enumerate(self._names))])

    def _line(self, n: int, name: str, width: int) -> Text:
        knob, staged = KNOBS[name], self._stage.changes.get(name)
        now = fit(knob_value(self._stage.base[name], knob.unit), _VALUE - 1)
        line = Text.assemble(("▸ " if n == self._at else "  ", f"bold {ACTIVE}"), (f"{name:<{_NAME}}", TEXT))
        line.append(f"{now:<{_VALUE}}", TEXT if staged is None else MUTED)
        then = fit(knob_value(staged, knob.unit), _VALUE - 1) if staged is not None else ""
        line.append(f"{then:<{_VALUE}}", f"bold {WARN}")
        if (left := width - line.cell_len) >= 20:
            line.append(textwrap.shorten(knob.meaning, left - 1, placeholder="…") if n == self._at else "", MUTED)
        if n == self._at:
            line.pad_right(max(width - line.cell_len, 0))
            line.stylize(Style(bgcolor=CURSOR))
        return line
