"""What every panel has: a titled frame, a number to jump to it, and a view that it draws."""

from dataclasses import dataclass, field

from rich.text import Text
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from collector.views.models import Overview
from console.top.feed import Control
from console.top.guard import Guarded, has_charts, report
from console.top.palette import MUTED


@dataclass(frozen=True)
class View:
    """What is on the screen: the newest data, the newest knobs, and whether knobs may be changed."""

    overview: Overview | None = None
    control: Control = field(default_factory=Control)
    readonly: bool = False

    @property
    def horizon(self) -> int | None:
        """The knob k, as the server says or as the last recorded change says."""
        if self.control.states is not None:
            return int(self.control.states.find("k").value)
        changes = self.overview.knob_changes if self.overview else ()
        newest = next((c.new for c in changes if c.name == "k"), None)
        return int(newest) if newest is not None and newest.isdigit() else None


class Framed(Guarded, Widget):
    """A frame with a title: a caption stands at its foot where there is one, else beside the title."""

    heading = ""
    digit = 0

    def caption(self, text: str = "", count: str = "") -> None:
        """Set the title and what stands beside or under it. `text` is plain text, never markup."""
        framed = has_charts(self)
        title = Content(" ".join(filter(None, (str(self.digit), self.heading, count))))
        beside = Content("" if framed or not text else f"  {text}").stylize("not bold")
        self.border_title = title + beside  # pyright: ignore[reportAttributeAccessIssue]
        self.border_subtitle = Content(text) if framed and text else None  # pyright: ignore[reportAttributeAccessIssue]


class Panel(Framed, can_focus=True):
    """Draws `view` as lines of text that fit its size. `heading` is the title without the panel's digit."""

    view: reactive[View] = reactive(View(), layout=False)

    def __init__(self, digit: int, *, id: str) -> None:
        super().__init__(id=id, classes="panel")
        self.digit = digit

    def on_mount(self) -> None:
        self.caption()

    def watch_view(self, view: View) -> None:
        if self.is_mounted and self.digit:
            self.caption(self.summary(view.overview) if view.overview is not None else "")

    def render(self) -> Text:
        overview = self.view.overview
        if overview is None or overview.status == "empty":
            return Text("no data yet", MUTED)
        width, height = self.content_size.width, self.content_size.height
        if width < 24 or height < 1:
            return Text()
        try:
            lines = self.lines(overview, width, height)[:height]
        except Exception as error:  # one panel must not take the screen with it
            report(self, error)
            return Text("cannot be drawn; see the log file", MUTED)
        for line in lines:
            line.truncate(width)
        return Text("\n").join(lines)

    def summary(self, overview: Overview) -> str:
        """The caption."""
        return ""

    def lines(self, overview: Overview, width: int, height: int) -> list[Text]:
        """Up to `height` lines of at most `width` cells, the most important first."""
        raise NotImplementedError


def facts(*pairs: tuple[str, str, str]) -> Text:
    """(label, value, colour) side by side: muted labels, values in colour."""
    line = Text()
    for label, value, colour in pairs:
        if line:
            line.append("  ")
        line.append(f"{label} " if label else "", MUTED).append(value, colour)
    return line
