"""The keys that work now, and what the marks on the screen mean."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from console.top.guard import Guarded
from console.top.palette import ACTIVE, BAD, FREE, GOOD, LOCKED, MUTED, RETIRED, TEXT

_MARKS = (
    (("act", ACTIVE), "cached, touched by a live workflow or an unattributed call"),
    (("ret", RETIRED), "cached, every workflow that touched it has ended"),
    (("lock", LOCKED), "held by running calls and copies"),
    (("free", FREE), "unallocated"),
    (("✓", GOOD), "the predicted agent came"),
    (("✗", BAD), "another one came"),
    (("+3", TEXT), "predicted 3 steps ahead; END counts as an outcome"),
    (("v5 @6000", TEXT), "knob version 5, in effect since scheduler step 6000"),
)


class Help(Guarded, ModalScreen[None]):
    """`keys`: (key, what it does, works now)."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q", "dismiss", "Close")]

    def __init__(self, keys: list[tuple[str, str, bool]], note: str) -> None:
        super().__init__()
        self._keys, self._note = keys, note

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(self._text())

    def _text(self) -> Text:
        text = Text()
        for key, what, works in self._keys:
            text.append(f"{key:>10}  ", f"bold {ACTIVE}" if works else MUTED).append(f"{what}\n", TEXT if works else MUTED)
        if self._note:
            text.append(f"\n{self._note}\n", MUTED)
        text.append("\n")
        for (mark, colour), meaning in _MARKS:
            text.append(f"{mark:>10}  ", f"bold {colour}").append(f"{meaning}\n", MUTED)
        return text.append("\nEsc closes", MUTED)
