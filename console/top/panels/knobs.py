"""The knobs: value, and version and step of the last change, from the server itself or, without it, from the event log."""

from dataclasses import dataclass

from rich.text import Text
from textual.app import ComposeResult
from textual.reactive import reactive
from textual.widgets import Static

from console.top.format import UNKNOWN, knob_value
from console.top.palette import BAD, MUTED, TEXT, WARN
from console.top.panels.base import Framed, View
from console.top.panels.table import Col, LiveTable
from pbkv.knobs import KNOBS

_NARROW = (Col("knob", "knob", 16), Col("value", "value", 0), Col("since", "changed", 12, right=True))
_WIDE = (Col("knob", "knob", 16), Col("value", "value", 0), Col("default", "default", 13), Col("since", "changed", 13, right=True))


@dataclass(frozen=True)
class Row:
    """One knob as shown; `value` None = not known, `version` None = never changed."""

    name: str
    value: str | None
    default: str
    differs: bool
    version: int | None
    step: int | None


class KnobsPanel(Framed):
    """Panel 7."""

    heading = "Knobs"

    view: reactive[View] = reactive(View())

    def __init__(self, digit: int, *, id: str) -> None:
        super().__init__(id=id, classes="panel")
        self.digit = digit

    def on_mount(self) -> None:
        self.caption()

    def compose(self) -> ComposeResult:
        yield Static(id="knob-note")
        yield LiveTable(id="knob-table", header=False)
        yield Static(id="knob-log")

    def on_resize(self) -> None:
        self._draw()

    def watch_view(self) -> None:
        if self.is_mounted:
            self._draw()

    @property
    def selected(self) -> str:
        """Name of the knob under the cursor."""
        return self.query_one(LiveTable).row_key_at_cursor() or "gamma"

    def _draw(self) -> None:
        if not self.children or self.content_size.width < 20:
            return
        note = self.query_one("#knob-note", Static)
        text = _note(self.view)
        note.display = bool(text)
        note.update(text or "")
        self.caption(_summary(self.view))
        table = self.query_one(LiveTable)
        table.layout_columns(_WIDE if self.content_size.width >= 60 else _NARROW, self.content_size.width)
        table.show({row.name: _cells(row, stale=self.view.control.error is not None) for row in knob_rows(self.view)})
        log = self.query_one("#knob-log", Static)
        if log.display:
            log.update(_log(self.view, self.content_size.width))


def knob_rows(view: View) -> list[Row]:
    """All knobs: as the server says, or as the newest recorded changes say."""
    if view.control.states is not None:
        return [
            Row(k.name, knob_value(k.value, k.unit), knob_value(k.default, k.unit), k.value != k.default,
                k.changed.version if k.changed else None, k.changed.step if k.changed else None)
            for k in view.control.states.knobs
        ]
    newest = {c.name: c for c in reversed(view.overview.knob_changes)} if view.overview else {}
    rows: list[Row] = []
    for knob in KNOBS.values():
        change = newest.get(knob.name)
        default = knob_value(knob.default, knob.unit)
        value = knob_value(int(change.new), knob.unit) if change and change.new.isdigit() else change.new if change else None
        rows.append(Row(knob.name, value, default, value != default, change.version if change else None, change.step if change else None))
    return rows


def _cells(row: Row, stale: bool) -> dict[str, Text]:
    colour = MUTED if stale or row.value is None else TEXT
    since = f"v{row.version} @{row.step}" if row.version is not None else UNKNOWN
    return {
        "knob": Text(row.name, MUTED if stale else TEXT),
        "value": Text(row.value or UNKNOWN, f"bold {colour}" if row.differs and row.value else colour),
        "default": Text(row.default, MUTED),
        "since": Text(since, MUTED),
    }


def _log(view: View, width: int) -> Text:
    """The recorded changes, newest first: version, step, what, who."""
    changes = view.overview.knob_changes if view.overview else ()
    lines: list[Text] = [Text("changes" if changes else "no change recorded", MUTED)]
    for c in changes[:30]:
        line = Text.assemble(
            (f"v{c.version} @{c.step}  ", MUTED), (f"{c.name} {c.old} → ", TEXT), (c.new, f"bold {TEXT}"), (f"  {c.actor}", MUTED),
            ("" if c.source == "manual" else f" ({c.source})", WARN), (f"  {c.reason}", MUTED),
        )
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return Text("\n").join(lines)


def _note(view: View) -> Text | None:
    control = view.control
    if control.error is not None:
        return Text(f"control unreachable: {control.error}", BAD, no_wrap=True, overflow="ellipsis")
    if control.url is None and view.overview is not None and view.overview.status == "recorded":
        return Text("recording: values of its last changes", MUTED, no_wrap=True)
    if control.url is None:
        return Text("no control URL yet; name one with --server", WARN, no_wrap=True)
    return None


def _summary(view: View) -> str:
    parts: list[str] = []
    if view.control.states is not None:
        parts.append(f"v{view.control.states.version} @{view.control.states.step}")
    if view.readonly:
        parts.append("readonly")
    return "  ".join(parts)
