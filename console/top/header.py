"""The first line (what is watched, and can it be believed) and the banner under it (what is wrong, and what to do)."""

import time

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from collector.views.models import Overview
from console.top.feed import Snapshot
from console.top.format import age, count, fit
from console.top.guard import Guarded
from console.top.palette import BAD, GOOD, MUTED, TEXT, WARN

_BADGES = {"live": ("● LIVE", GOOD), "stale": ("◌ STALE", WARN), "recorded": ("■ RECORDED", MUTED), "empty": ("○ EMPTY", WARN)}


class HeaderLine(Guarded, Widget):
    """One line; what matters least gives way first when it is narrow."""

    snapshot: reactive[Snapshot] = reactive(Snapshot(None))
    paused: reactive[bool] = reactive(False)
    interval_s: reactive[float] = reactive(1.0)
    window_s: reactive[float] = reactive(60.0)
    readonly: reactive[bool] = reactive(False)

    def render(self) -> Text:
        right = Text(f"window {age(self.window_s).replace('.0s', 's')}  every {self.interval_s:g}s", MUTED)
        width = self.content_size.width
        if width >= 120:
            width -= right.cell_len + 2
        parts = self._parts()
        # (text, rank): the highest rank is dropped first.
        while len(parts) > 1 and sum(t.cell_len + 2 for t, _ in parts) > width:
            parts.remove(max(parts, key=lambda p: p[1]))
        line = Text("  ").join([t for t, _ in parts])
        line.truncate(width, pad=width < self.content_size.width)
        return line if width == self.content_size.width else line.append("  ").append_text(right)

    def _parts(self) -> list[tuple[Text, int]]:
        overview = self.snapshot.overview
        parts = [(self._badge(), 0)]
        if overview is not None and overview.server is not None:
            parts += _about(overview)
        if self.paused:
            parts.insert(1, (Text("PAUSED", f"bold {WARN}"), 1))
        if self.readonly:
            parts.append((Text("readonly", MUTED), 7))
        return parts

    def _badge(self) -> Text:
        overview = self.snapshot.overview
        if self.snapshot.error is not None:
            return Text("✗ NO DATA" if overview is None else "✗ LOST", f"bold {BAD}")
        if overview is None:
            return Text("… CONNECTING", f"bold {MUTED}")
        label, colour = _BADGES[overview.status]
        if overview.server is not None and overview.status in ("live", "stale"):
            label += f" {age(overview.server.age_s)}"
        return Text(label, f"bold {colour}")


def _about(overview: Overview) -> list[tuple[Text, int]]:
    server = overview.server
    assert server is not None
    loss = overview.loss
    lost = Text(f"LOST {count(loss.messages)} msgs in {count(loss.gaps)} gaps", f"bold {BAD}") if loss.messages else Text("no loss", MUTED)
    parts = [
        (Text(fit(server.name, 20), f"bold {TEXT}"), 1), (Text(fit(server.engine, 20), TEXT), 4),
        (Text(fit(server.model.rstrip("/").rsplit("/", 1)[-1], 20), TEXT), 5),
        (Text.assemble(("step ", MUTED), (f"{server.step:,}", TEXT)), 2), (lost, 2 if loss.messages else 8),
    ]
    if overview.occupancy is not None:
        o = overview.occupancy
        load = Text.assemble(("run ", MUTED), (str(o.running), TEXT), (" wait ", MUTED), (str(o.waiting), WARN if o.waiting else TEXT))
        parts.append((load, 3))
    return [(text, rank) for text, rank in parts if text.plain.strip()]


class Banner(Guarded, Static):
    """One sentence about the one thing to act on first; hidden when all is well."""

    def tell(self, snapshot: Snapshot) -> None:
        """Show what is wrong with `snapshot`, or nothing."""
        text, colour = _trouble(snapshot)
        self.display = bool(text)
        self.styles.background = colour or "transparent"
        self.update(Text(text, "bold #0f1318", no_wrap=True, overflow="ellipsis"))


def _trouble(snapshot: Snapshot) -> tuple[str, str]:
    overview = snapshot.overview
    if snapshot.error is not None:
        since = age(time.monotonic() - snapshot.since) if snapshot.since is not None else ""
        kept = f"data of {since} ago, retrying" if overview is not None else f"for {since}, retrying"
        return f" {kept}: {snapshot.error}", BAD
    if overview is None:
        return "", ""
    if overview.status == "empty":
        return " no events yet: is a server running, and does the collector's --connect name it?", WARN
    if overview.status == "stale" and overview.server is not None:
        return f" no event for {age(overview.server.age_s)}: the server is idle, stopped or cut off", WARN
    return "", ""
