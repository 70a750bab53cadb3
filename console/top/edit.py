"""The dialog that changes one knob: bounds and meaning shown, checked here first, applied by the server at a scheduler step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Input, Label, Static

from console.top.format import knob_value
from console.top.guard import Guarded, app_of
from console.top.palette import BAD, MUTED, TEXT
from pbkv.control.client import ControlClient
from pbkv.control.tuning import Applied, KnobState, KnobStates, apply_change, load_knobs
from pbkv.errors import PbkvError, StaleVersion, UsageError
from pbkv.knobs import KNOBS, Value


@dataclass(frozen=True)
class Attempt:
    """What came of an attempt."""

    applied: Applied | None = None
    error: str | None = None
    states: KnobStates | None = None


class EditKnob(Guarded, ModalScreen[Applied | None]):
    """Dismissed with the applied change, or None when cancelled. A stale version keeps it open, with the knobs read again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel"), Binding("up", "other(-1)", "Previous knob"), Binding("down", "other(1)", "Next knob"),
    ]

    def __init__(self, name: str, states: KnobStates, client: ControlClient) -> None:
        super().__init__()
        self.knob = name
        self.states = states
        self._client = client
        self._busy = False

    def compose(self) -> ComposeResult:
        state = self.states.find(self.knob)
        choices = KNOBS[self.knob].choices if self.knob in KNOBS else ()
        with Vertical(id="edit"):
            yield Label(Text(state.name, f"bold {TEXT}"), id="edit-name")
            yield Static(id="edit-about")
            yield Input(
                _plain(state.value), id="edit-value", select_on_focus=True, compact=True,
                suggester=SuggestFromList(choices) if choices else None,
            )
            yield Input(placeholder="reason, for the event log (optional)", id="edit-reason", max_length=100, compact=True)
            yield Static(id="edit-error")
            yield Static(Text("Enter apply   Tab reason   ↑ ↓ other knob   Esc cancel", MUTED))

    def on_mount(self) -> None:
        self._describe()
        self.query_one("#edit-value", Input).focus()

    def _describe(self) -> None:
        self.query_one("#edit-about", Static).update(about(self.states.find(self.knob), self.states))

    @on(Input.Changed, "#edit-value")
    def _check(self, event: Input.Changed) -> None:
        try:
            self._parse(event.value)
        except UsageError as error:
            self._fail(str(error))
        else:
            self._fail("")

    def _parse(self, text: str) -> Value:
        if self.knob not in KNOBS:
            raise UsageError(f"knob {self.knob}: unknown to this console; update it")
        return KNOBS[self.knob].parse_text(text.strip())

    def _fail(self, sentence: str) -> None:
        self.query_one("#edit-error", Static).update(Text(sentence, BAD))

    @on(Input.Submitted)
    def _submit(self) -> None:
        if self._busy:
            return
        try:
            value = self._parse(self.query_one("#edit-value", Input).value)
        except UsageError as error:
            self._fail(str(error))
            return
        self._busy = True
        self._fail("")
        self._apply(value, self.query_one("#edit-reason", Input).value, self.states.version)

    @work(thread=True, exit_on_error=False)
    def _apply(self, value: Value, reason: str, version: int) -> None:
        app_of(self).call_from_thread(self._done, attempt(self._client, {self.knob: value}, reason, version))

    def _done(self, answer: Attempt) -> None:
        self._busy = False
        if answer.applied is not None:
            self.dismiss(answer.applied)
            return
        if answer.states is not None:
            self.states = answer.states
            self._describe()
        self._fail(answer.error or "")

    def action_other(self, step: int) -> None:
        """Go to the knob above or below in the list."""
        if self._busy:
            return
        names = [k.name for k in self.states.knobs]
        self.knob = names[(names.index(self.knob) + step) % len(names)]
        self.query_one("#edit-name", Label).update(Text(self.knob, f"bold {TEXT}"))
        box = self.query_one("#edit-value", Input)
        choices = KNOBS[self.knob].choices if self.knob in KNOBS else ()
        box.suggester = SuggestFromList(choices) if choices else None
        box.value = _plain(self.states.find(self.knob).value)
        self._describe()
        box.focus()
        # As on opening: what is typed replaces the value; inserted into it, it would become another number.
        box.action_select_all()

    def action_cancel(self) -> None:
        self.dismiss(None)


def attempt(client: ControlClient, changes: Mapping[str, Value], reason: str, version: int, key: str = "Enter") -> Attempt:
    """Apply changes on top of `version`; when somebody else was faster, the knobs are read again for the next try, which `key` makes."""
    try:
        return Attempt(applied=apply_change(client, dict(changes), if_version=version, reason=reason))
    except StaleVersion as error:
        return Attempt(error=f"{error}. {key} applies on top of it.", states=_again(client))
    except PbkvError as error:
        return Attempt(error=str(error))


def _again(client: ControlClient) -> KnobStates | None:
    try:
        return load_knobs(client)
    except PbkvError:
        return None


def about(state: KnobState, states: KnobStates) -> Text:
    """Meaning, bounds, default, and who changed it last."""
    text = Text.assemble((f"{state.meaning}\n", MUTED), ("now ", MUTED), (knob_value(state.value, state.unit), TEXT))
    text.append("  default ", MUTED).append(knob_value(state.default, state.unit), TEXT)
    text.append(f"  knobs at version {states.version}\n", MUTED)
    if state.changed is not None:
        c = state.changed
        text.append(f"changed {c.old} → {state.value} in version {c.version} at step {c.step} by {c.actor}\n", MUTED)
    return text.append("expected: ", MUTED).append(state.expected, TEXT)


def _plain(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
