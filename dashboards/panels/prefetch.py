"""Prefetches by outcome, and the reasons for the ones that were not made."""

from collector.views.models import Overview
from dashboards.figure import Figure, axis, figure, hbar
from dashboards.format import count, number, percent, plural, size
from dashboards.panels.panel import Panel, Table
from dashboards.scene import Scene

#: (field, label, colour), top to bottom
OUTCOMES = (
    ("issued", "issued", "neutral"),
    ("completed", "copied", "active"),
    ("used", "used", "right"),
    ("late", "late", "late"),
    ("evicted_unused", "evicted unused", "wrong"),
)
REASONS = {
    "busy_link": "link busy",
    "no_space": "no idle room",
    "budget": "budget spent",
    "low_value": "value too low",
    "just_evicted": "just evicted",
}
_OFF = (
    "No prefetch was considered in this window. Set the knobs prefetch = conservative and prefetch_budget above 0; "
    "the engine needs a host tier."
)


def _bars(scene: Scene, labels: list[str], counts: list[int], colors: list[str], hover: list[str]) -> Figure:
    bars = hbar(labels[::-1], counts[::-1], "", colors[::-1], [count(c) for c in counts[::-1]], hover[::-1])
    return figure(
        scene.palette,
        [bars],
        margin={"l": 104, "r": 14, "t": 8, "b": 26},
        xaxis=axis(scene.palette, tickformat=".2~s", nticks=5, range=[0, 1.18 * max(*counts, 1)], rangemode="tozero"),
        yaxis=axis(scene.palette, showgrid=False),
    )


def _draw_outcomes(scene: Scene) -> Figure | None:
    p = scene.overview.prefetches
    if not p.issued + p.completed + p.used + p.late + p.evicted_unused:
        return None
    counts = [int(getattr(p, field)) for field, _, _ in OUTCOMES]
    hover = [f"{label}: {number(n)} prefetches" for (_, label, _), n in zip(OUTCOMES, counts, strict=True)]
    hover[0] += f"<br>{count(p.issued_tokens)} tokens, {size(p.issued_bytes)}"
    return _bars(scene, [label for _, label, _ in OUTCOMES], counts, [getattr(scene.palette, role) for _, _, role in OUTCOMES], hover)


def _summary_outcomes(overview: Overview) -> str:
    p = overview.prefetches
    if not p.issued:
        return ""
    known = p.used + p.evicted_unused + p.late
    return f"{size(p.issued_bytes)} issued" + (f" · {percent(p.used / known)} of outcomes used" if known else "")


def _empty_outcomes(overview: Overview) -> str:
    if overview.prefetches.skipped:
        return "Nothing was prefetched in this window; the panel beside says why each candidate was skipped."
    return _OFF


def _draw_skips(scene: Scene) -> Figure | None:
    skipped = [(REASONS.get(reason, reason.replace("_", " ")), n) for reason, n in scene.overview.prefetches.skipped if n]
    if not skipped:
        return None
    skipped.sort(key=lambda item: -item[1])
    hover = [f"{label}: {number(n)} candidates skipped" for label, n in skipped]
    return _bars(scene, [label for label, _ in skipped], [n for _, n in skipped], [scene.palette.neutral] * len(skipped), hover)


def _summary_skips(overview: Overview) -> str:
    total = sum(n for _, n in overview.prefetches.skipped)
    return plural(total, "candidate") if total else ""


def _empty_skips(overview: Overview) -> str:
    return "No candidate was skipped in this window." if overview.prefetches.issued else _OFF


def _table_outcomes(overview: Overview) -> Table:
    p = overview.prefetches
    rows: list[list[object]] = [[field, getattr(p, field)] for field, _, _ in OUTCOMES]
    return ["result", "value"], [*rows, ["issued_tokens", p.issued_tokens], ["issued_bytes", p.issued_bytes]]


OUTCOMES_PANEL = Panel(
    "prefetches",
    "Prefetches",
    "Host-to-device copies made ahead of a predicted call, and what became of them. Late: the call came before the copy was done.",
    "host-to-device copies ahead of a predicted call",
    _draw_outcomes,
    _summary_outcomes,
    _empty_outcomes,
    _table_outcomes,
)
SKIPS_PANEL = Panel(
    "skips",
    "Prefetches skipped",
    "Candidates that were not prefetched, by the first reason that stood against them.",
    "candidates, by the first reason against them",
    _draw_skips,
    _summary_skips,
    _empty_skips,
    lambda o: (["reason", "skipped"], [list(item) for item in o.prefetches.skipped]),
)
