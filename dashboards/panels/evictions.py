"""Evicted tokens by what happened to them and why they were chosen."""

from collector.views.models import Evictions, Overview
from dashboards.figure import Figure, axis, figure, hbar
from dashboards.format import count, plural
from dashboards.panels.panel import Panel, Table
from dashboards.scene import Scene

#: (decision on the wire, what the legend says, colour)
DECISIONS = (("retired", "retired", "retired"), ("scored", "lowest score", "active"), ("tie", "recency among equals", "neutral"))


def movement(row: Evictions) -> str:
    """Where the victim went, in words."""
    return f"{row.from_tier}, dropped" if row.to_tier == "none" else f"{row.from_tier} → {row.to_tier}"


def _draw(scene: Scene) -> Figure | None:
    rows = [e for e in scene.overview.evictions if e.tokens]
    if not rows:
        return None
    totals: dict[str, int] = {}
    for row in rows:
        totals[movement(row)] = totals.get(movement(row), 0) + row.tokens
    moves = sorted(totals, reverse=True)
    data = [bar for decision, label, role in DECISIONS if (bar := _bar(scene, rows, moves, decision, label, role))]
    sums = hbar(moves, [0] * len(moves), "total", "rgba(0,0,0,0)", [count(totals[m]) for m in moves], [""] * len(moves)) | {
        "hoverinfo": "skip"
    }
    sums.pop("hovertemplate")
    return figure(
        scene.palette,
        [*data, sums],
        barmode="stack",
        margin={"l": 104, "r": 14, "t": 8, "b": 26},
        xaxis=axis(scene.palette, tickformat=".2~s", nticks=6, range=[0, 1.15 * max(totals.values())]),
        yaxis=axis(scene.palette, showgrid=False),
    )


def _bar(scene: Scene, rows: list[Evictions], moves: list[str], decision: str, label: str, role: str) -> dict[str, object] | None:
    chosen = [r for r in rows if r.decision == decision]
    if not chosen:
        return None
    tokens = [sum(r.tokens for r in chosen if movement(r) == m) for m in moves]
    nodes = [sum(r.nodes for r in chosen if movement(r) == m) for m in moves]
    hover = [f"{m} · {label}: {count(t)} tokens in {plural(n, 'node')}" for m, t, n in zip(moves, tokens, nodes, strict=True)]
    return hbar(moves, tokens, label, getattr(scene.palette, role), [""] * len(moves), hover)


def _summary(overview: Overview) -> str:
    nodes, tokens = sum(e.nodes for e in overview.evictions), sum(e.tokens for e in overview.evictions)
    return f"{count(tokens)} tokens in {plural(nodes, 'node')}" if nodes else ""


def _table(overview: Overview) -> Table:
    header = ["decision", "from_tier", "to_tier", "nodes", "tokens"]
    return header, [[e.decision, e.from_tier, e.to_tier, e.nodes, e.tokens] for e in overview.evictions]


PANEL = Panel(
    "evictions",
    "Evictions by reason",
    "Tokens of evicted nodes: which tier lost them, which still holds them, and why they were chosen.",
    tuple((label, role) for _, label, role in DECISIONS),
    _draw,
    _summary,
    lambda o: "Nothing was evicted in this window: the tiers had room.",
    _table,
)
