"""How often the predictor's first guess was right, by how many steps ahead it looked."""

from collector.views.models import Overview
from dashboards.figure import PERCENTS, Figure, axis, figure
from dashboards.format import count, percent
from dashboards.panels.panel import Panel, Table
from dashboards.scene import Scene


def _draw(scene: Scene) -> Figure | None:
    scored = [a for a in scene.overview.accuracy if a.scored]
    if not scored:
        return None
    shares = [100 * (a.top1 or 0.0) for a in scored]
    hover = [
        f"{a.horizon} ahead: {a.correct:,} of {a.scored:,} right ({percent(a.top1)})<br>{percent(a.end_share)} of outcomes were END"
        for a in scored
    ]
    bars = {
        "type": "bar",
        "x": [a.horizon for a in scored],
        "y": shares,
        "marker": {"color": scene.palette.active},
        "customdata": hover,
        "hovertemplate": "%{customdata}<extra></extra>",
        "text": [f"{percent(a.top1)}<br>n={count(a.scored)}" for a in scored],
        "textposition": "outside",
        "textfont": {"size": 11},
        "cliponaxis": False,
        "constraintext": "none",
    }
    top = max(60.0, max(shares) + 30)
    xaxis = axis(scene.palette, dtick=1, showgrid=False, ticksuffix=" ahead", range=[0.4, max(a.horizon for a in scored) + 0.6])
    return figure(
        scene.palette,
        [bars],
        xaxis=xaxis,
        yaxis=axis(scene.palette, range=[0, top], tickvals=PERCENTS, ticktext=[f"{v} %" for v in PERCENTS]),
    )


def _summary(overview: Overview) -> str:
    first = next((a for a in overview.accuracy if a.horizon == 1 and a.scored), None)
    return f"next agent right {first.correct:,} of {first.scored:,}" if first else ""


def _empty(overview: Overview) -> str:
    rate = overview.hit_rate
    if rate.calls and rate.unattributed_calls == rate.calls:
        return (
            f"None of the {rate.calls:,} calls named its workflow, so nothing can be predicted. "
            "Send custom_params.pbkv with workflow and agent (OpenAI clients: extra_body)."
        )
    return "No prediction has a known outcome in this window yet. Accuracy appears once a workflow makes its next call."


def _table(overview: Overview) -> Table:
    header = ["steps_ahead", "scored", "correct", "top1", "end_share"]
    return header, [[a.horizon, a.scored, a.correct, a.top1, a.end_share] for a in overview.accuracy]


PANEL = Panel(
    "accuracy",
    "Predictor accuracy",
    "Share of predictions whose likeliest agent (or END) was the one that came, by steps ahead; n = predictions with a known outcome.",
    "first guess right, by steps ahead · n = known outcomes",
    _draw,
    _summary,
    _empty,
    _table,
)
