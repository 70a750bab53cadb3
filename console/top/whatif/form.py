"""The form of a grid: an axis to a line, and by what the best setting is named."""

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Grid, Horizontal
from textual.suggester import SuggestFromList
from textual.widgets import Input, Label

from console.top.palette import MUTED
from pbkv.whatif.asked import FIELDS, MOST_TEXT, Asked, asked


class Form(Grid):
    """Two columns of lines, three on a wide screen. `texts`: field -> text, kept by the app while the screen is closed."""

    def __init__(self, texts: dict[str, str]) -> None:
        super().__init__(id="grid-form")
        self._texts = texts

    def compose(self) -> ComposeResult:
        for name, field in FIELDS.items():
            with Horizontal(classes="field"):
                yield Label(Text(f"{field.label:>13} ", MUTED))
                yield Input(
                    self._texts.get(name, ""), id=f"field-{name}", placeholder=field.example, compact=True, max_length=MOST_TEXT,
                    select_on_focus=False, suggester=SuggestFromList(field.words) if field.words else None,
                )

    def on_input_changed(self, event: Input.Changed) -> None:
        assert event.input.id is not None
        self._texts[event.input.id.removeprefix("field-")] = event.value

    def fill(self, texts: dict[str, str]) -> None:
        """Put these texts into the lines and empty the others."""
        for box in self.query(Input):
            assert box.id is not None
            box.value = texts.get(box.id.removeprefix("field-"), "")

    def asked(self) -> Asked:
        """Raises UsageError for what can be told to be wrong here."""
        return asked(self._texts)
