"""Share of prompt tokens served from each tier over time, with the knob changes that may explain a bend."""

from collector.views.models import Overview
from dashboards.figure import PERCENTS, Figure, area, over_time
from dashboards.format import axis_time, percent, plural, utc
from dashboards.panels.panel import Panel, Table
from dashboards.scene import Scene, thin


def _draw(scene: Scene) -> Figure | None:
    points = thin(scene.overview.hit_series)
    if not points:
        return None
    x = [axis_time(p.t, scene.zone) for p in points]
    data = [
        area(x, [100 * p.device for p in points], "device", scene.palette.device, "%{y:.0f} %", 0.45),
        area(x, [100 * p.host for p in points], "host", scene.palette.host, "%{y:.0f} %", 0.45),
    ]
    return over_time(scene, data, {"range": [0, 106], "tickvals": PERCENTS, "ticktext": [f"{v} %" for v in PERCENTS]}, 103)


def _summary(overview: Overview) -> str:
    rate = overview.hit_rate
    if rate.device is None or rate.host is None:
        return ""
    return f"{percent(rate.device + rate.host)} of prompt tokens · {plural(rate.calls, 'call')}"


def _empty(overview: Overview) -> str:
    return "No call ended in this window. Send requests to the engine, or pick a longer window."


def _table(overview: Overview) -> Table:
    return ["time_utc", "calls", "device", "host"], [[utc(p.t).isoformat(), p.calls, p.device, p.host] for p in overview.hit_series]


PANEL = Panel(
    "hits",
    "Hit rate",
    "Prompt tokens found on the device or loaded back from the host, as a share of all prompt tokens of the calls that "
    "ended. Dotted lines: knob changes.",
    (("device", "device"), ("host", "host"), ("knob change", "knob")),
    _draw,
    _summary,
    _empty,
    _table,
)
