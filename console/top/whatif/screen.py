"""The What-if screen: a grid is asked for, runs in a process of its own, and is looked at as a table, a curve or a map."""

import math
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from console.top.guard import Guarded, app_of
from console.top.palette import BAD, GOOD, MUTED, TEXT, WARN
from console.top.panels.table import LiveTable
from console.top.whatif.form import Form
from console.top.whatif.pane import VIEWS, Pane
from console.top.whatif.progress import progress_line
from pbkv.errors import UsageError
from pbkv.whatif.asked import Asked
from pbkv.whatif.front import WhatIf
from pbkv.whatif.question import Answer
from pbkv.whatif.results import Result, result_of
from pbkv.whatif.setting import Setting
from pbkv.whatif.words import basis

OWNER = "grid"
#: Between two drawings of a grid that is running, s.
DRAW_S = 0.3


class WhatIfScreen(Guarded, ModalScreen[Setting | None]):
    """Dismissed with a setting to stage, or None. `texts`: of the form, kept by the app."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "run", "run", key_display="^r"),
        *(Binding(name[0], f"view('{name}')", name) for name in VIEWS),
        Binding("f", "figure", "figure"), Binding("x", "axis", "axis"), Binding("n", "next", "next", show=False),
        Binding("s", "sort", "sort"),
        Binding("a", "apply", "stage"), Binding("escape", "leave", "back", key_display="esc"),
    ]

    def __init__(self, desk: WhatIf, texts: dict[str, str]) -> None:
        super().__init__()
        self._desk, self._texts = desk, texts
        self.answer: Answer | None = None
        self.asked: Asked | None = None
        self._asked = 0
        self._dirty = False

    def compose(self) -> ComposeResult:
        yield Static(Text("What-if", "bold"), id="grid-basis")
        yield Form(self._texts)
        yield Static(id="grid-progress")
        yield Pane(id="grid-pane")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(Form).query(Input).first().focus()
        self._say("^r or enter runs the grid; esc leaves the form, then the keys below choose the view", MUTED)
        self.set_interval(DRAW_S, self._draw)
        newest = self._desk.results.newest(1)
        if newest:
            self._open(*newest[0], fill=False)

    def on_unmount(self) -> None:
        self._desk.grids.withdraw(OWNER)

    @property
    def running(self) -> bool:
        """Whether a grid is on its way."""
        return self.answer is not None and not self.answer.done

    # Running

    @on(Input.Submitted)
    def action_run(self) -> None:
        """Ask for the grid of the form; one that is running is given up."""
        try:
            asked = self.query_one(Form).asked()
            self._asked += 1
            number, app = self._asked, app_of(self)

            def tell(answer: Answer) -> None:
                if app.is_running:
                    app.call_later(self._tell, number, answer)

            self._desk.grids.grid(OWNER, asked.axes, tell, span_s=asked.span_s)
        except UsageError as error:
            self._say(str(error), BAD)
            return
        self.asked, self.answer = asked, Answer()
        self._say("reading the log …", WARN)
        self.query_one(Pane).focus_view()

    def _tell(self, number: int, answer: Answer) -> None:
        if not self.is_mounted or number != self._asked or self.answer is None:
            return
        self.answer, self._dirty = answer, True
        if answer.done:
            self._draw()
            self._finished()

    def _draw(self) -> None:
        """What has come since; a cell that comes alone is not worth a drawing."""
        if not self._dirty or self.answer is None:
            return
        self._dirty = False
        if (result := self._result()) is not None:
            self._basis(result)
            self.query_one(Pane).show(result)
        if not self.answer.done:
            self.query_one("#grid-progress", Static).update(progress_line(self.answer, self.size.width - 2))

    def _result(self) -> Result | None:
        if self.answer is None or self.answer.about is None or self.asked is None:
            return None
        return result_of(self.answer, self._desk.source, self.asked.axes, under=self.asked.under, best=self.asked.best)

    def _finished(self, *, stopped: bool = False) -> None:
        """The last word: kept under an id, with the best setting named."""
        assert self.answer is not None
        result = self._result()
        if result is None or not result.cells:
            self._say(self.answer.error or "stopped before the first setting was answered", BAD)
            return
        try:
            id_ = self._desk.results.keep(result)
        except UsageError as error:
            self._say(str(error), BAD)
            return
        self.query_one(Pane).show(result)
        took = f"in {self.answer.took_s:.1f} s" if not math.isnan(self.answer.took_s) and not stopped else "stopped"
        head = f"{len(result.cells)} of {result.asked} settings {took}, kept as {id_}. {self.answer.error}"
        line = Text.assemble((head, WARN if stopped or self.answer.error else GOOD)).append_text(self.query_one(Pane).best_line())
        self.query_one("#grid-progress", Static).update(line)

    # Looking

    def _open(self, id_: str, result: Result, *, fill: bool = True) -> None:
        self._basis(result)
        self.query_one(Pane).show(result)
        line = Text.assemble((f"kept as {id_}. ", MUTED))
        self.query_one("#grid-progress", Static).update(line.append_text(self.query_one(Pane).best_line()))
        if fill:
            self.query_one(Form).fill({**result.axes, "under": result.under, "best": result.best, "last": f"{result.about.span_s:.0f}s"})

    def _basis(self, result: Result) -> None:
        self.query_one("#grid-basis", Static).update(Text.assemble(
            ("What-if  ", f"bold {TEXT}"), (f"the last {basis(result.about)}, replayed", MUTED),
        ))

    @on(LiveTable.RowSelected, "#grid-kept")
    def _chosen(self, event: LiveTable.RowSelected) -> None:
        try:
            self._open(str(event.row_key.value), self._desk.results.get(str(event.row_key.value)))
        except UsageError as error:
            self._say(str(error), BAD)
            return
        self.query_one(Pane).view("table")

    @on(LiveTable.RowSelected, "#grid-table")
    def _row(self) -> None:
        self.action_apply()

    def action_view(self, name: str) -> None:
        pane = self.query_one(Pane)
        if name == "kept":
            pane.kept = self._desk.results.newest()
        pane.view(name)

    def action_figure(self) -> None:
        self.query_one(Pane).next_figure()

    def action_axis(self) -> None:
        self.query_one(Pane).next_axis()

    def action_next(self) -> None:
        self.query_one(Pane).next_slice()

    def action_sort(self) -> None:
        self.query_one(Pane).next_order()

    def action_apply(self) -> None:
        """Stage the setting under the cursor, else the best one, in the Tune screen."""
        setting = self.query_one(Pane).chosen
        if setting is None:
            self._say("no setting is chosen: run a grid first", WARN)
            return
        self.dismiss(setting)

    def action_leave(self) -> None:
        """Leave the form, then stop the run, then leave the screen."""
        if isinstance(self.focused, Input):
            self.query_one(Pane).focus_view()
        elif self.running:
            assert self.answer is not None
            self._desk.grids.withdraw(OWNER)
            self.answer = replace(self.answer, done=True)
            self._finished(stopped=True)
        else:
            self.dismiss(None)

    def _say(self, sentence: str, colour: str) -> None:
        self.query_one("#grid-progress", Static).update(Text(sentence, colour))
