"""The log of knob changes: who set what, why, and the scheduler step at which it took effect."""

from datetime import tzinfo

import dash_mantine_components as dmc

from collector.views.models import KnobChange, Overview
from dashboards.format import clock, number, utc
from dashboards.panels import grid
from dashboards.panels.panel import Props, Table

NAME = "changes"
HEIGHT = 200
_COLUMNS = (
    grid.column("time", "Time", width=178, minWidth=172, filter=False),
    grid.number_column("version", "Version", "version_text", width=86),
    grid.number_column("step", "Step", "step_text", width=90, tip="scheduler step at which it took effect"),
    grid.column("name", "Knob", width=140),
    grid.column("change", "Change", width=190, tooltipField="change"),
    grid.column("actor", "By", width=110, tooltipField="actor"),
    grid.column("source", "Cause", width=96, filter=False, tip="manual, revert, expiry (not confirmed in time) or guard"),
    grid.column("reason", "Reason", width=190, tooltipField="reason"),
)


def component() -> dmc.Paper:
    """The grid without rows."""
    return grid.frame(NAME, "Knob changes", "Every applied change on record, newest first.", _COLUMNS, HEIGHT)


def row(c: KnobChange, zone: tzinfo) -> grid.Row:
    """One change as a grid row."""
    return {
        "id": f"{c.t.isoformat()}/{c.version}/{c.name}",
        "time": clock(c.t, zone, with_date=True),
        "version": c.version,
        "version_text": f"v{c.version}",
        "step": c.step,
        "step_text": number(c.step),
        "name": c.name,
        "change": f"{c.old} → {c.new}",
        "actor": c.actor,
        "source": c.source,
        "reason": c.reason,
    }


def props(overview: Overview, zone: tzinfo) -> Props:
    """The newest changes; component id -> properties."""
    rows = [row(c, zone) for c in overview.knob_changes[: grid.MAX_ROWS]]
    return grid.props(NAME, HEIGHT, rows, len(overview.knob_changes), "on record", "No knob has been changed on record.")


def table(overview: Overview) -> Table:
    """All changes on record, values unformatted."""
    header = ["time_utc", "version", "step", "knob", "old", "new", "actor", "source", "reason"]
    return header, [
        [utc(c.t).isoformat(), c.version, c.step, c.name, c.old, c.new, c.actor, c.source, c.reason] for c in overview.knob_changes
    ]
