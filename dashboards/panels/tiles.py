"""The row of headline numbers."""

from collections.abc import Callable

from dash import html

from collector.views.models import Overview
from dashboards.format import UNKNOWN, count, millis, percent, plural
from dashboards.panels import link
from dashboards.panels.panel import Props

Tile = tuple[str, str]


def _hit(overview: Overview) -> Tile:
    rate = overview.hit_rate
    if rate.device is None or rate.host is None:
        return UNKNOWN, "no calls in this window"
    return percent(rate.device + rate.host), f"device {percent(rate.device)} · host {percent(rate.host)}"


def _ttft(overview: Overview) -> Tile:
    rate = overview.hit_rate
    if rate.ttft_p50_ms is None:
        return UNKNOWN, "no calls in this window"
    return millis(rate.ttft_p50_ms), f"median · p95 {millis(rate.ttft_p95_ms)}"


def _predictor(overview: Overview) -> Tile:
    first = next((a for a in overview.accuracy if a.horizon == 1 and a.scored), None)
    return (percent(first.top1), f"right {first.correct:,} of {first.scored:,}") if first else (UNKNOWN, "no known outcomes")


def _retired(overview: Overview) -> Tile:
    now = overview.occupancy
    if now is None:
        return UNKNOWN, "no samples"
    capacity = now.device_free + now.device_active + now.device_retired + now.device_locked
    return count(now.device_retired), f"tokens · {percent(now.device_retired / capacity if capacity else None)} of the device"


def _load(overview: Overview) -> Tile:
    now = overview.occupancy
    if now is None:
        return UNKNOWN, "no samples"
    return f"{now.running} / {now.waiting}", f"running / waiting · {plural(now.workflows, 'workflow')}"


TILES: tuple[tuple[str, str, Callable[[Overview], Tile]], ...] = (
    ("hit", "Hit rate", _hit),
    ("ttft", "Time to first token", _ttft),
    ("predictor", "Next agent predicted", _predictor),
    ("retired", "Retired on the device", _retired),
    ("linkuse", "Idle link used", lambda o: (link.used_share(o), link.used_text(o))),
    ("load", "Requests", _load),
)


def component() -> html.Div:
    """All tiles without values."""
    return html.Div(
        [
            html.Div(
                [
                    html.Div(label, className="tile-label"),
                    html.Div(UNKNOWN, id=f"tile-{key}", className="tile-value"),
                    html.Div("", id=f"tile-{key}-sub", className="tile-sub"),
                ],
                className="tile",
            )
            for key, label, _ in TILES
        ],
        className="tiles",
    )


def props(overview: Overview) -> Props:
    """Values of all tiles; component id -> properties."""
    result: Props = {}
    for key, _, read in TILES:
        value, sub = read(overview)
        result[f"tile-{key}"] = {"children": value}
        result[f"tile-{key}-sub"] = {"children": sub}
    return result
