"""Tune: knobs are moved, and beside the present stands what the last minutes would have come to, with the error of saying so."""

from collections.abc import Mapping
from typing import ClassVar, Protocol, cast

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from console.top.edit import Attempt, attempt
from console.top.feed import Control
from console.top.figures import FigureTable
from console.top.guard import Guarded, app_of
from console.top.palette import BAD, GOOD, MUTED, TEXT, WARN
from console.top.stage import Stage
from console.top.staged import StagedKnobs
from pbkv.control.client import ControlClient
from pbkv.control.tuning import Applied
from pbkv.errors import UsageError
from pbkv.knobs import Value
from pbkv.whatif.front import WhatIf
from pbkv.whatif.question import Answer
from pbkv.whatif.words import basis

#: Whose questions these are, in the service of this terminal.
OWNER = "tune"


class Tunes(Protocol):
    """The app, as this screen sees it."""

    control: Control
    readonly: bool

    def control_client(self) -> ControlClient | None:
        """For one change; None while no server has named its URL."""
        ...


class Tune(Guarded, ModalScreen[Applied | None]):
    """Dismissed with the applied change, or None. `knob`: where the cursor begins."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,down", "", "knob", key_display="↑↓"),
        Binding("left", "move(-1)", "less", key_display="←"), Binding("right", "move(1)", "more", key_display="→"),
        Binding("enter", "type", "type"), Binding("backspace", "undo", "undo"), Binding("delete", "undo_all", "undo all"),
        Binding("a", "apply", "apply"), Binding("escape,t", "leave", "back", key_display="esc"),
    ]

    def __init__(self, desk: WhatIf, stage: Stage, knob: str = "") -> None:
        super().__init__()
        self._desk, self.stage, self._knob = desk, stage, knob
        self.answer = Answer()
        self._asked = -1
        self._busy = False
        self._note: Text | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="tune-basis")
        yield StagedKnobs(self.stage, id="tune-knobs")
        yield Input(id="tune-value", compact=True, placeholder="value")
        yield Static(id="tune-staged")
        yield FigureTable(id="tune-figures")
        yield Static(id="tune-state")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        knobs = self.query_one(StagedKnobs)
        knobs.select(self._knob)
        knobs.focus()
        self._ask()

    def on_unmount(self) -> None:
        self._desk.quick.withdraw(OWNER)

    # Forecasts

    def _ask(self) -> None:
        """Ask about what is staged now; the question before is cancelled by it."""
        settings = (self.stage.setting,) if self.stage.changes else ()
        app, self._asked, self._note = app_of(self), self._asked + 1, None
        number = self._asked

        def tell(answer: Answer) -> None:
            if app.is_running:
                app.call_later(self._tell, number, answer)

        try:
            self._desk.quick.ask(OWNER, settings, tell)
        except UsageError as error:
            self.answer = Answer(error=str(error), done=True)
        else:
            self.answer = Answer(settings, self.answer.about, self.answer.present)
        self._show()

    def _tell(self, number: int, answer: Answer) -> None:
        if not self.is_mounted or number != self._asked:
            return
        self.answer = answer
        if not self.stage.version and answer.about is not None:
            self.stage.rebase(answer.about.knobs, 0)
        self._show()

    def _show(self) -> None:
        if not self.is_mounted:
            return
        about = self.answer.about
        self.query_one("#tune-basis", Static).update(Text.assemble(
            ("Tune  ", f"bold {TEXT}"), (f"the last {basis(about)}, replayed" if about else "reading the log", MUTED),
        ))
        self.query_one(StagedKnobs).refresh()
        self.query_one("#tune-staged", Static).update(self._note or staged_line(self.stage))
        self.query_one(FigureTable).show(self.answer, moved=bool(self.stage.changes))
        self.query_one("#tune-state", Static).update(state_line(self.answer))

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "apply" and cast(Tunes, app_of(self)).readonly:
            return None
        return True

    def action_move(self, direction: int) -> None:
        self.stage.move(self.query_one(StagedKnobs).selected, direction)
        self._ask()

    def action_undo(self) -> None:
        self.stage.undo(self.query_one(StagedKnobs).selected)
        self._ask()

    def action_undo_all(self) -> None:
        self.stage.changes.clear()
        self._ask()

    def action_type(self) -> None:
        """Open the line for a value; what is valid in it is staged with every key."""
        box = self.query_one("#tune-value", Input)
        name = self.query_one(StagedKnobs).selected
        box.value = _plain(self.stage.value(name))
        box.add_class("open")
        box.focus()
        box.action_select_all()

    @on(Input.Changed, "#tune-value")
    def _typed(self, event: Input.Changed) -> None:
        if not event.input.has_class("open"):
            return
        try:
            self.stage.type(self.query_one(StagedKnobs).selected, event.value)
        except UsageError as error:
            self._say(str(error), BAD)
            return
        self._ask()

    @on(Input.Submitted, "#tune-value")
    def _typed_all(self) -> None:
        self._close_line()

    def _close_line(self) -> None:
        self._note = None
        self.query_one("#tune-value", Input).remove_class("open")
        self.query_one(StagedKnobs).focus()
        self._show()

    def action_leave(self) -> None:
        if self.query_one("#tune-value", Input).has_class("open"):
            self._close_line()
            return
        self.dismiss(None)

    # Apply

    def action_apply(self) -> None:
        app = cast(Tunes, app_of(self))
        if app.readonly:
            self._say("readonly: start without --readonly to change knobs", WARN)
        elif not self.stage.changes:
            self._say("nothing is staged: move a knob first", WARN)
        elif (client := app.control_client()) is None:
            self._say(app.control.error or "no server has named its control URL; name it with --server", BAD)
        elif not self._busy:
            self._busy = True
            self._say("applying …", MUTED)
            self._apply(client, dict(self.stage.changes), self.stage.version)

    @work(thread=True, exit_on_error=False)
    def _apply(self, client: ControlClient, changes: Mapping[str, Value], version: int) -> None:
        app_of(self).call_from_thread(self._applied, attempt(client, changes, "tuned by forecast", version, key="a"))

    def _applied(self, answer: Attempt) -> None:
        self._busy = False
        if answer.applied is not None:
            self.dismiss(answer.applied)
            return
        if answer.states is not None:
            self.stage.rebase({k.name: k.value for k in answer.states.knobs}, answer.states.version)
            self._ask()
        self._say(answer.error or "", BAD)

    def _say(self, sentence: str, colour: str) -> None:
        """Instead of what is staged, until that changes."""
        self._note = Text(sentence, colour)
        self._show()


def staged_line(stage: Stage) -> Text:
    """What is staged, in words."""
    if not stage.changes:
        return Text("nothing staged", MUTED)
    line = Text.assemble((f"staged on version {stage.version}: " if stage.version else "staged: ", MUTED))
    line.append(", ".join(f"{name} {_plain(stage.base[name])} → {_plain(value)}" for name, value in stage.changes.items()), f"bold {WARN}")
    if stage.unforecast:
        line.append(f"; no part of the forecast: {', '.join(stage.unforecast)}", MUTED)
    return line


def state_line(answer: Answer) -> Text:
    """How far the forecast is, or why there is none."""
    refused = next((found.refused for found in answer.found.values() if found.refused), "")
    if answer.error or refused:
        return Text(f"no forecast: {answer.error or refused}", BAD)
    if not answer.done:
        return Text("forecasting …" if answer.present else "reading and replaying the log …", WARN)
    if not answer.settings:
        return Text("move a knob: beside the present stands what these calls would have come to", MUTED)
    return Text.assemble(("✓ ", GOOD), (f"forecast in {answer.took_s:.1f} s; the truth lies in the interval nine times in ten", MUTED))


def _plain(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
