"""`pbkv top`: the screen, its keys, and the flow of snapshots from the feed's threads to the panels."""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, cast

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Footer, Input

from console.top.edit import EditKnob
from console.top.feed import Control, Feed, Snapshot
from console.top.guard import Guarded
from console.top.header import Banner, HeaderLine
from console.top.help import Help
from console.top.layout import CSS
from console.top.palette import THEME
from console.top.panels.accuracy import AccuracyPanel
from console.top.panels.base import View
from console.top.panels.cache import CachePanel
from console.top.panels.evictions import EvictionPanel
from console.top.panels.hits import HitsPanel
from console.top.panels.knobs import KnobsPanel
from console.top.panels.prefetch import PrefetchPanel
from console.top.panels.table import LiveTable
from console.top.panels.workflows import WorkflowsPanel
from console.top.stage import Stage
from console.top.tune import Tune
from console.top.whatif.screen import WhatIfScreen
from pbkv.control.client import ControlClient
from pbkv.control.tuning import Applied
from pbkv.errors import UsageError
from pbkv.knobs import Value
from pbkv.whatif.asked import DEFAULTS
from pbkv.whatif.front import WhatIf
from pbkv.whatif.setting import Setting
from pbkv.whatif.words import changes_of

log = logging.getLogger("pbkv.top")

INTERVALS_S = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
WINDOWS_S = (30.0, 60.0, 300.0, 900.0, 3600.0)
#: Smallest terminal that gets frames and charts.
CHARTS_AT = (120, 40)

PANELS = ("cache", "hits", "accuracy", "evictions", "prefetch", "workflows", "knobs")


class Data(Message):
    """The feed has read the source (or failed to)."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class Knobs(Message):
    """The feed has asked the server for its knobs (or failed to)."""

    def __init__(self, control: Control) -> None:
        super().__init__()
        self.newest = control


class TopApp(Guarded, App[None]):
    """Shows what `feed` reads until the user quits. `faults` counts errors of the app's own; they are logged and never end it."""

    CSS = CSS
    TITLE = "pbkv top"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", tooltip="this list"),
        Binding("q", "quit", "quit", tooltip="leave"),
        Binding("space", "pause", "pause", tooltip="stop or go on reading"),
        Binding("e", "edit", "edit knob", tooltip="change the knob under the cursor"),
        Binding("t", "tune", "tune", tooltip="move knobs and see beside the present what they would have come to"),
        Binding("i", "whatif", "what-if", tooltip="run a grid of settings over the last minutes: curves, maps, the best one"),
        Binding("slash", "filter", "filter", tooltip="show what matches a regular expression; ! inverts"),
        Binding("s", "sort", "sort", tooltip="next order of the workflows; or click a header"),
        Binding("w", "window", "window", tooltip="length of the time window: 30 s to 1 h"),
        Binding("plus,equals_sign", "faster", "faster", key_display="+", tooltip="read more often", show=False),
        Binding("minus", "slower", "slower", key_display="-", tooltip="read less often", show=False),
        Binding("escape", "leave", "leave", show=False),
        *(Binding(str(n), f"panel({n})", f"panel {n}", show=False) for n in range(1, len(PANELS) + 1)),
    ]

    def __init__(self, feed: Feed, *, readonly: bool = False, desk: WhatIf | None = None) -> None:
        super().__init__()
        self.feed, self.desk = feed, desk
        self.form = dict(DEFAULTS)
        self.readonly = readonly
        self.faults = 0
        self.snapshot = Snapshot(None)
        self.control = Control()

    def compose(self) -> ComposeResult:
        yield HeaderLine()
        yield Banner()
        with Container(id="grid"):
            yield CachePanel(1, id="cache")
            yield HitsPanel(2, id="hits")
            yield AccuracyPanel(3, id="accuracy")
            yield EvictionPanel(4, id="evictions")
            yield PrefetchPanel(5, id="prefetch")
            yield KnobsPanel(7, id="knobs")
            yield WorkflowsPanel(6, id="workflows")
        yield Input(id="filter", placeholder="filter workflows: regular expression, ! in front inverts", compact=True)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.register_theme(THEME)
        self.theme = "pbkv"
        self._settings()
        self.feed.start(lambda s: self._post(Data(s)), lambda c: self._post(Knobs(c)))

    def on_unmount(self) -> None:
        self.feed.stop()
        if self.desk is not None:
            self.desk.close()

    def _post(self, message: Message) -> None:
        # A feed thread may finish a read while the app is closing.
        if self.is_running:
            self.post_message(message)

    def on_resize(self, event: events.Resize) -> None:
        width, height = CHARTS_AT
        self.set_class(event.size.width >= width and event.size.height >= height, "-charts")
        self.call_after_refresh(self._show)

    def on_data(self, message: Data) -> None:
        if not self.screen_stack:
            return  # the last message of a feed may come while the app is closing
        self.snapshot = message.snapshot
        header, banner = self._main.query_one(HeaderLine), self._main.query_one(Banner)
        header.snapshot = message.snapshot
        banner.tell(message.snapshot)
        self.set_class(message.snapshot.error is not None, "-dim")
        self._show()

    def on_knobs(self, message: Knobs) -> None:
        self.control = message.newest
        self._show()

    @property
    def _main(self) -> Widget:
        """The screen with the panels, also while a dialog lies over it."""
        return self.screen_stack[0]

    def _show(self) -> None:
        if not self.screen_stack:
            return
        view = View(self.snapshot.overview, self.control, self.readonly)
        for name in PANELS:
            cast(Any, self._main.query_one(f"#{name}")).view = view

    def _settings(self) -> None:
        header = self._main.query_one(HeaderLine)
        header.interval_s, header.window_s = self.feed.interval_s, self.feed.window_s
        header.paused, header.readonly = self.feed.paused, self.readonly
        self.feed.wake()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # None shows the key dimmed: it exists but does nothing now.
        if action == "edit" and self.readonly or action in ("tune", "whatif") and self.desk is None:
            return None
        return True

    def action_help(self) -> None:
        shown = [(b.key_display or self.get_key_display(b), b.tooltip, self.check_action(b.action, ()) is True)
                 for b in _bindings() if b.tooltip]
        extra = [
            ("1…7", "go to a panel", True), ("↑ ↓ enter", "choose a knob, change it", not self.readonly), ("esc", "clear the filter", True),
        ]
        self.push_screen(Help(shown + extra, "readonly: knobs cannot be changed here; start without --readonly" if self.readonly else ""))

    def action_pause(self) -> None:
        self.feed.paused = not self.feed.paused
        self._settings()

    def action_faster(self) -> None:
        self._pace(-1)

    def action_slower(self) -> None:
        self._pace(1)

    def _pace(self, step: int) -> None:
        place = min(range(len(INTERVALS_S)), key=lambda i: abs(INTERVALS_S[i] - self.feed.interval_s))
        self.feed.interval_s = INTERVALS_S[min(max(place + step, 0), len(INTERVALS_S) - 1)]
        self._settings()

    def action_window(self) -> None:
        longer = [w for w in WINDOWS_S if w > self.feed.window_s]
        self.feed.window_s = longer[0] if longer else WINDOWS_S[0]
        self._settings()

    def action_panel(self, digit: int) -> None:
        panel = self._main.query_one(f"#{PANELS[digit - 1]}")
        table = panel.query(LiveTable)
        # At once: a key typed right behind the digit belongs to the panel already.
        self.screen.set_focus(table.first() if table else panel)

    def action_sort(self) -> None:
        self._main.query_one(WorkflowsPanel).next_sort()

    def action_filter(self) -> None:
        box = self._main.query_one("#filter", Input)
        box.add_class("open")
        self.screen.set_focus(box)

    def action_leave(self) -> None:
        """Leave the filter line, then clear the filter, then leave the panel."""
        box, workflows = self._main.query_one("#filter", Input), self._main.query_one(WorkflowsPanel)
        if box.value or workflows.pattern:
            box.value = ""
            workflows.filter("")
        box.remove_class("open")
        self.screen.set_focus(None)

    @on(Input.Changed, "#filter")
    def _filter(self, event: Input.Changed) -> None:
        try:
            self._main.query_one(WorkflowsPanel).filter(event.value)
            event.input.border_subtitle = None
            event.input.remove_class("-invalid")
        except UsageError:
            event.input.add_class("-invalid")  # half-typed: the last pattern that compiled stays in force

    @on(Input.Submitted, "#filter")
    def _filter_done(self, event: Input.Submitted) -> None:
        try:
            self._main.query_one(WorkflowsPanel).filter(event.value)
        except UsageError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        event.input.remove_class("open")
        self.screen.set_focus(None)

    @on(LiveTable.RowSelected, "#knob-table")
    def _enter_on_knob(self) -> None:
        self.action_edit()

    def action_edit(self) -> None:
        if self.readonly:
            self.notify("readonly: start without --readonly to change knobs", severity="warning", markup=False)
            return
        client = self.feed.client()
        if client is None or self.control.states is None:
            why = self.control.error or "no server has named its control URL; name it with --server"
            self.notify(f"knobs cannot be changed now: {why}", severity="error", markup=False)
            return
        panel = self._main.query_one(KnobsPanel)
        self.push_screen(EditKnob(panel.selected, self.control.states, client), self._edited)

    def _edited(self, applied: Applied | None) -> None:
        if applied is None:
            return
        what = ", ".join(f"{name} {old} → {new}" for name, old, new in applied.changes)
        self.notify(f"{what}: version {applied.version}, in effect at step {applied.step}", markup=False)
        self.feed.wake()

    def control_client(self) -> ControlClient | None:
        """For one change; None while no server has named its URL, or its knobs could not be read."""
        return self.feed.client() if self.control.states is not None else None

    def action_tune(self, changes: Mapping[str, Value] | None = None) -> None:
        """Open the Tune screen with these changes staged, the cursor on the knob it is on here."""
        if self.desk is not None:
            states = self.control.states
            stage = Stage.on(states, changes) if states is not None else Stage.unknown(changes)
            self.push_screen(Tune(self.desk, stage, self._main.query_one(KnobsPanel).selected), self._edited)

    def action_whatif(self) -> None:
        if self.desk is not None:
            self.push_screen(WhatIfScreen(self.desk, self.form), self._chosen)

    def _chosen(self, setting: Setting | None) -> None:
        """A setting of a grid is to be staged."""
        if setting is None:
            return
        base = Stage.on(self.control.states).base if self.control.states is not None else Stage.unknown().base
        staged, cannot = changes_of(setting, base)
        if cannot:
            self.notify(f"not a knob of a running server: {', '.join(cannot)}", severity="warning", markup=False)
        self.action_tune(staged)

    def fault(self, error: Exception) -> None:
        """Log an error of the app's own and show the first few; the screen stays."""
        self.faults += 1
        log.error("fault in the app", exc_info=error)
        if self.is_running and self.faults <= 3:
            self.notify(f"internal error ({type(error).__name__}: {error}); see the log file", severity="error", markup=False)

    def _handle_exception(self, error: Exception) -> None:
        # What no part of the screen could take: leave in order, with a sentence instead of a traceback over the terminal.
        self.fault(error)
        self.exit(return_code=1, message=f"internal error ({type(error).__name__}: {error}); see top.log in the state folder")


def _bindings() -> list[Binding]:
    return [b for b in TopApp.BINDINGS if isinstance(b, Binding)]
