"""Live workflows: where each stands, what was predicted for the step it is at, and what is predicted next."""

import dash_mantine_components as dmc

from collector.views.models import LiveWorkflow, Overview
from dashboards.format import UNKNOWN, age, count, percent
from dashboards.panels import grid
from dashboards.panels.panel import Props, Table

NAME = "workflows"
HEIGHT = 300
_COLUMNS = (
    grid.column("workflow", "Workflow", width=170, tooltipField="workflow"),
    grid.column("step", "Step", type="rightAligned", filter=False, width=70),
    grid.column("agent", "Agent", width=120, tooltipField="agent"),
    grid.column(
        "predicted",
        "Predicted for it",
        minWidth=135,
        width=150,
        tip="what the predictor expected at this step: ✓ right, ✗ wrong",
        cellClassRules={"cell-right": "params.data.hit === true", "cell-wrong": "params.data.hit === false"},
    ),
    grid.column("next", "Predicted next", width=150, minWidth=135),
    grid.number_column("p", "p", "p_text", width=74, tip="probability of that agent, given the workflow goes on"),
    grid.number_column("calls", "Calls", "calls_text", width=74),
    grid.number_column("prompt", "Prompt", "prompt_text", width=84, tip="prompt tokens of all its calls"),
    grid.number_column("hit_rate", "Hit rate", "hit_text", width=88, tip="prompt tokens found in either tier"),
    grid.number_column("idle", "Idle", "idle_text", width=74, tip="since its last call ended"),
)


def component() -> dmc.Paper:
    """The grid without rows."""
    return grid.frame(
        NAME,
        "Live workflows",
        "Workflows that have started and not ended or retired.",
        _COLUMNS,
        HEIGHT,
    )


def row(w: LiveWorkflow) -> grid.Row:
    """One workflow as a grid row. The verdict on a prediction is a mark and a colour, never a colour alone."""
    mark = {True: "✓ ", False: "✗ ", None: ""}[w.hit]
    return {
        "id": w.workflow,
        "workflow": w.workflow,
        "step": w.step,
        "agent": w.agent,
        "hit": w.hit,
        "predicted": mark + (w.predicted_last or UNKNOWN),
        "next": w.predicted_next or UNKNOWN,
        "p": w.p_next,
        "p_text": UNKNOWN if w.p_next is None else f"{w.p_next:.2f}",
        "calls": w.calls,
        "calls_text": count(w.calls),
        "prompt": w.prompt_tokens,
        "prompt_text": count(w.prompt_tokens),
        "hit_rate": w.hit_rate,
        "hit_text": percent(w.hit_rate),
        "idle": w.idle_s,
        "idle_text": age(w.idle_s),
    }


def props(overview: Overview) -> Props:
    """The most recently active workflows; component id -> properties."""
    rows = [row(w) for w in overview.workflows[: grid.MAX_ROWS]]
    return grid.props(
        NAME,
        HEIGHT,
        rows,
        len(overview.workflows),
        "live",
        "No live workflow. A request names its workflow and agent in custom_params.pbkv (OpenAI clients: extra_body).",
    )


def table(overview: Overview) -> Table:
    """All live workflows, values unformatted."""
    header = [
        "workflow",
        "step",
        "agent",
        "predicted_for_it",
        "right",
        "predicted_next",
        "p_next",
        "calls",
        "prompt_tokens",
        "hit_rate",
        "idle_s",
    ]
    return header, [
        [w.workflow, w.step, w.agent, w.predicted_last, w.hit, w.predicted_next, w.p_next, w.calls, w.prompt_tokens, w.hit_rate, w.idle_s]
        for w in overview.workflows
    ]
