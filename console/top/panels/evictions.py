"""Victims by why they were chosen and where they went."""

from rich.text import Text

from collector.views.models import Evictions, Overview
from console.top.chart import share_bar
from console.top.format import count
from console.top.palette import ACTIVE, MUTED, RETIRED, TEXT, WARN
from console.top.panels.base import Panel

_COLOURS = {"retired": RETIRED, "scored": ACTIVE, "tie": WARN}


class EvictionPanel(Panel):
    """Panel 4."""

    heading = "Evictions"

    def summary(self, overview: Overview) -> str:
        rows = overview.evictions
        return f"{count(sum(r.nodes for r in rows))} nodes  {count(sum(r.tokens for r in rows))} tok" if rows else ""

    def lines(self, overview: Overview, width: int, height: int) -> list[Text]:
        rows = overview.evictions
        tokens = sum(r.tokens for r in rows)
        if not rows:
            return [Text("none in this window", MUTED)]
        shown = rows if len(rows) <= height else rows[: height - 1]
        lines = [_row(r, tokens, width) for r in shown]
        if len(shown) < len(rows):
            rest = rows[len(shown):]
            lines.append(Text(f"{len(rest)} more kinds, {count(sum(r.tokens for r in rest))} tok", MUTED))
        return lines


def _row(row: Evictions, total: int, width: int) -> Text:
    to = "drop" if row.to_tier == "none" else row.to_tier
    line = Text.assemble(
        (f"{row.decision:<8}", _COLOURS.get(row.decision, TEXT)), (f"{row.from_tier:>6}→{to:<7}", TEXT),
        (f"{count(row.nodes):>6}", TEXT), (f"{count(row.tokens):>7}", TEXT), (" tok" if width >= 46 else "", MUTED),
    )
    left = width - line.cell_len - 1
    if left <= 2:
        return line
    return line.append(" ").append_text(share_bar(row.tokens / total if total else 0.0, left, _COLOURS.get(row.decision, TEXT)))
