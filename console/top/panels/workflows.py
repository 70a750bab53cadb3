"""Live workflows: the agent that came, whether it was the predicted one, and the one predicted next."""

import re
from collections.abc import Callable
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.reactive import reactive
from textual.widgets import DataTable, Static

from collector.views.models import LiveWorkflow
from console.top.format import UNKNOWN, age, count, fit, percent
from console.top.palette import BAD, GOOD, MUTED, TEXT
from console.top.panels.base import Framed, View
from console.top.panels.table import Col, LiveTable
from pbkv.errors import UsageError

_NARROW = (
    Col("workflow", "workflow", 0), Col("step", "step", 4, right=True), Col("predicted", "predicted", 12), Col("agent", "actual", 13),
    Col("next", "next", 12), Col("p", "p", 4, right=True), Col("hit", "hit", 4, right=True), Col("idle", "idle", 5, right=True),
)
_WIDE = (
    Col("workflow", "workflow", 0), Col("step", "step", 5, right=True), Col("predicted", "predicted", 16), Col("agent", "actual", 18),
    Col("next", "next", 16), Col("p", "p", 5, right=True), Col("hit", "hit", 5, right=True), Col("calls", "calls", 6, right=True),
    Col("prompt", "prompt", 7, right=True), Col("idle", "idle", 6, right=True),
)

#: Sort orders, in the order of the key `s`; by newest activity first.
SORTS: dict[str, Callable[[LiveWorkflow], Any]] = {
    "idle": lambda w: w.idle_s,
    "workflow": lambda w: w.workflow,
    "step": lambda w: -w.step,
    "agent": lambda w: w.agent,
    "next": lambda w: w.predicted_next or "",
    "p": lambda w: -(w.p_next or 0.0),
    "hit": lambda w: -(w.hit_rate or 0.0),
    "prompt": lambda w: -w.prompt_tokens,
}


def matcher(pattern: str) -> Callable[[LiveWorkflow], bool]:
    """A filter over workflow and agent names: a regular expression, `!` in front inverts. Raises UsageError when it does not compile."""
    wanted = not pattern.startswith("!")
    text = pattern.removeprefix("!")
    if not text:
        return lambda w: True
    try:
        found = re.compile(text, re.IGNORECASE).search
    except re.error as error:
        raise UsageError(f"filter {text!r}: not a regular expression ({error})") from None
    return lambda w: any(found(name) for name in (w.workflow, w.agent, w.predicted_next or "")) == wanted


class WorkflowsPanel(Framed):
    """Panel 6."""

    heading = "Live workflows"

    view: reactive[View] = reactive(View())

    def __init__(self, digit: int, *, id: str) -> None:
        super().__init__(id=id, classes="panel")
        self.digit = digit
        self.pattern = ""
        self.order = "idle"
        self._matches = matcher("")

    def compose(self) -> ComposeResult:
        yield LiveTable(id="workflow-table")
        yield Static("", id="workflow-empty")

    def on_mount(self) -> None:
        self.caption()

    def on_resize(self) -> None:
        self._draw()

    def watch_view(self) -> None:
        if self.is_mounted:
            self._draw()

    def filter(self, pattern: str) -> None:
        """Show only what `pattern` matches. Raises UsageError and keeps the old filter when it is no pattern."""
        self._matches = matcher(pattern)
        self.pattern = pattern
        self._draw()

    def sort_by(self, order: str) -> None:
        """Sort by a key of SORTS."""
        self.order = order
        self._draw()

    def next_sort(self) -> str:
        """Go to the next order; returns its name."""
        names = list(SORTS)
        self.sort_by(names[(names.index(self.order) + 1) % len(names)])
        return self.order

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        if event.column_key.value in SORTS:
            self.sort_by(event.column_key.value)

    def _draw(self) -> None:
        width = self.content_size.width
        if not self.children or width < 40:
            return
        everything = self.view.overview.workflows if self.view.overview else ()
        chosen = sorted((w for w in everything if self._matches(w)), key=SORTS[self.order])
        self.caption(f"by {self.order}" + (f"  /{self.pattern}/" if self.pattern else ""), _of(len(chosen), len(everything)))
        table = self.query_one(LiveTable)
        table.layout_columns(_WIDE if width >= 110 else _NARROW, width - 2)
        table.show({w.workflow: _cells(w, table) for w in chosen})
        empty = self.query_one("#workflow-empty", Static)
        empty.display = not chosen
        table.display = bool(chosen)
        empty.update(Text(_why_empty(self.view, bool(everything), self.pattern), MUTED))


def _of(shown: int, total: int) -> str:
    return str(total) if shown == total else f"{shown} of {total}"


def _why_empty(view: View, any_: bool, pattern: str) -> str:
    if any_:
        return f"no workflow matches {pattern!r}; / changes the filter"
    rate = view.overview.hit_rate if view.overview else None
    if rate is not None and rate.calls and rate.unattributed_calls == rate.calls:
        return "no call names its workflow: send custom_params.pbkv with workflow and agent (OpenAI clients: extra_body)"
    return "no live workflow"


def _cells(w: LiveWorkflow, table: LiveTable) -> dict[str, Text]:
    mark, colour = {True: ("✓ ", GOOD), False: ("✗ ", BAD), None: ("  ", TEXT)}[w.hit]
    return {
        "workflow": Text(fit(w.workflow, table.width_of("workflow")), TEXT),
        "step": Text(str(w.step), TEXT),
        "predicted": Text(fit(w.predicted_last or UNKNOWN, table.width_of("predicted")), MUTED),
        "agent": Text(fit(mark + (w.agent or UNKNOWN), table.width_of("agent")), colour),
        "next": Text(fit(w.predicted_next or UNKNOWN, table.width_of("next")), TEXT if w.predicted_next else MUTED),
        "p": Text(percent(w.p_next), TEXT if w.p_next is not None else MUTED),
        "hit": Text(percent(w.hit_rate), TEXT if w.hit_rate is not None else MUTED),
        "calls": Text(str(w.calls), TEXT),
        "prompt": Text(count(w.prompt_tokens), TEXT),
        "idle": Text(age(w.idle_s), MUTED),
    }
