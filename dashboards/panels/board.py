"""All panels of the page, in order, and all their CSV tables."""

import csv
import io
from collections.abc import Callable

from dash import html

from collector.views.models import Overview
from dashboards.panels import accuracy, changes, evictions, hits, link, occupancy, panel, prefetch, tiles, workflows
from dashboards.panels.panel import Props, Table
from dashboards.scene import Scene

PANELS = (
    occupancy.DEVICE_PANEL,
    occupancy.HOST_PANEL,
    hits.PANEL,
    accuracy.PANEL,
    evictions.PANEL,
    link.PANEL,
    prefetch.OUTCOMES_PANEL,
    prefetch.SKIPS_PANEL,
)
TABLES: dict[str, Callable[[Overview], Table]] = {
    **{p.name: p.table for p in PANELS},
    workflows.NAME: workflows.table,
    changes.NAME: changes.table,
}


def charts() -> html.Div:
    """The chart panels without data."""
    return html.Div([panel.frame(p) for p in PANELS], className="charts")


def props(scene: Scene) -> Props:
    """Everything on the board that changes with the data."""
    result = tiles.props(scene.overview)
    for one in PANELS:
        result |= panel.props(one, scene)
    return result | workflows.props(scene.overview) | changes.props(scene.overview, scene.zone)


def to_csv(table: Table) -> str:
    """A table as CSV text. Texts that a spreadsheet would run as a formula are quoted: names come from whoever calls the engine."""
    header, rows = table
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows([[_inert(v) for v in row] for row in rows])
    return out.getvalue()


def _inert(value: object) -> object:
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
