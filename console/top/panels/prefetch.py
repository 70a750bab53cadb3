"""What was prefetched, what became of it, and what the link's idle windows had room for."""

from rich.text import Text

from collector.views.models import Overview, Prefetches
from console.top.chart import stacked_bar
from console.top.format import count, millis, percent, size
from console.top.palette import BAD, FAINT, GOOD, MUTED, TEXT, WARN
from console.top.panels.base import Panel, facts


class PrefetchPanel(Panel):
    """Panel 5."""

    heading = "Prefetch"

    def summary(self, overview: Overview) -> str:
        p = overview.prefetches
        return f"{count(p.issued)} issued  {size(p.issued_bytes)}" if p.issued else ""

    def lines(self, overview: Overview, width: int, height: int) -> list[Text]:
        p, w = overview.prefetches, overview.windows
        lines = [
            _outcomes(p, width),
            facts(("used", count(p.used), GOOD), ("unused", count(p.evicted_unused), BAD), ("late", count(p.late), WARN)),
            _skips(p, width),
            _windows(overview, width),
        ]
        if height >= 6:
            lines.insert(1, facts(("issued", count(p.issued), TEXT), ("completed", count(p.completed), TEXT)))
            moved = facts(("moved in", size(w.h2d_bytes), TEXT), ("out", size(w.d2h_bytes), TEXT), ("of", size(w.capacity_bytes), MUTED))
            lines.append(moved)
        return lines


def _outcomes(p: Prefetches, width: int) -> Text:
    known = p.used + p.evicted_unused + p.late
    label = f"{percent(p.used / known) if known else '–':>4} used "
    open_ = max(0, p.issued - known)
    return Text(label, f"bold {TEXT}" if known else MUTED).append_text(
        stacked_bar([(p.used, GOOD), (p.late, WARN), (p.evicted_unused, BAD), (open_, FAINT)], width - len(label))
    )


def _skips(p: Prefetches, width: int) -> Text:
    """How many were skipped, and the commonest reasons that fit."""
    line = facts(("skipped", count(sum(n for _, n in p.skipped)), TEXT))
    for why, n in p.skipped:
        part = Text.assemble((f"  {_SHORT.get(why, why)} ", MUTED), (count(n), TEXT))
        if line.cell_len + part.cell_len > width:
            break
        line.append_text(part)
    return line


_SHORT = {"busy_link": "busy", "no_space": "space", "budget": "budget", "low_value": "low", "just_evicted": "fresh"}


def _windows(overview: Overview, width: int) -> Text:
    w = overview.windows
    moved = (w.h2d_bytes + w.d2h_bytes) / w.capacity_bytes if w.capacity_bytes else None
    median = ("p50" if width < 50 else "median", millis(w.p50_ms), TEXT)
    return facts(("idle link", f"{count(w.count)}x", TEXT), median, ("filled", percent(moved), TEXT))
