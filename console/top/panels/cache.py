"""Occupancy by state in both tiers: a stacked bar with numbers each, and their history where there is room."""

from datetime import timedelta

from rich.text import Text

from collector.views.models import Occupancy, Overview
from console.top.chart import area, hold, stacked_bar
from console.top.format import brief, count, percent
from console.top.palette import ACTIVE, FREE, LOCKED, MUTED, RETIRED, TEXT
from console.top.panels.base import Panel

#: Heights from which the history of the device alone, and of both tiers, is drawn.
_ONE_CHART, _TWO_CHARTS = 8, 12

Parts = list[tuple[str, int, str]]


def device(o: Occupancy) -> Parts:
    """(state, tokens, colour) of the device tier, from the bottom up."""
    return [
        ("locked", o.device_locked, LOCKED), ("active", o.device_active, ACTIVE), ("retired", o.device_retired, RETIRED),
        ("free", o.device_free, FREE),
    ]


def host(o: Occupancy) -> Parts:
    """(state, tokens, colour) of the host tier, from the bottom up."""
    return [("active", o.host_used, ACTIVE), ("retired", o.host_retired, RETIRED), ("free", o.host_free, FREE)]


class CachePanel(Panel):
    """Panel 1."""

    heading = "Cache"

    def lines(self, overview: Overview, width: int, height: int) -> list[Text]:
        o = overview.occupancy
        if o is None:
            return [Text("no occupancy sample yet", MUTED)]
        room = height - 4
        charts = 2 if height >= _TWO_CHARTS else 1 if height >= _ONE_CHART else 0
        lines: list[Text] = []
        for tier, parts in (("device", device), ("host", host)):
            lines += _tier(tier, parts(o), width)
            if charts:
                share = room // charts
                lines += self._history(overview, tier, width, share)
                charts, room = charts - 1, room - share
        return lines

    def _history(self, overview: Overview, tier: str, width: int, height: int) -> list[Text]:
        start = overview.now - timedelta(seconds=overview.window_s)
        parts = device if tier == "device" else host
        points: list[tuple[float, list[float]]] = []
        for o in overview.occupancy_series:
            values = [tokens for _, tokens, _ in parts(o)][:-1]
            total = sum(tokens for _, tokens, _ in parts(o)) or 1
            points.append(((o.t - start).total_seconds() / overview.window_s, [v / total for v in values]))
        colours = [colour for _, _, colour in parts(overview.occupancy_series[-1])][:-1] if points else []
        return area(hold(points, width), colours, height)


def _tier(name: str, parts: Parts, width: int) -> list[Text]:
    total = sum(tokens for _, tokens, _ in parts)
    used = total - parts[-1][1]
    label, tail = f"{name:<7}", f" {count(total):>6} {percent(used / total if total else None):>4}"
    bar = stacked_bar([(tokens, colour) for _, tokens, colour in parts], width - len(label) - len(tail))
    return [Text.assemble((label, TEXT), bar, (tail, TEXT)), _legend(parts, width)]


def _legend(parts: Parts, width: int) -> Text:
    wide = width >= 60
    legend = Text(" " * 7 if wide else "")
    for state, tokens, colour in parts:
        shown = MUTED if state == "free" else colour
        legend.append(f"{state if wide else _SHORT[state]} ", shown).append(count(tokens) if wide else brief(tokens), TEXT)
        legend.append("   " if wide else " ")
    return legend


_SHORT = {"locked": "lock", "active": "act", "retired": "ret", "free": "free"}
