"""Tokens by state over time, one panel per tier."""

from collections.abc import Sequence

from collector.views.models import Occupancy, Overview
from dashboards.figure import Figure, area, over_time
from dashboards.format import axis_time, count, percent, utc
from dashboards.panels.panel import Panel, Table
from dashboards.scene import Scene, thin

#: Bottom to top: (what people call it, field, colour).
DEVICE = (
    ("locked", "device_locked", "locked"),
    ("active", "device_active", "active"),
    ("retired", "device_retired", "retired"),
    ("free", "device_free", "free"),
)
HOST = (("active", "host_used", "active"), ("retired", "host_retired", "retired"), ("free", "host_free", "free"))
Layers = tuple[tuple[str, str, str], ...]
_OFF = "No occupancy samples in this window. They come from an engine that runs the pbkv plugin (--radix-cache-backend pbkv)."
_NO_HOST = (
    "This engine has no host tier. Start it with a hierarchical cache (--enable-hierarchical-cache) to keep evicted nodes in host memory."
)


def _total(sample: Occupancy, layers: Layers) -> int:
    return sum(getattr(sample, field) for _, field, _ in layers)


def _draw(scene: Scene, layers: Layers) -> Figure | None:
    samples = thin(scene.overview.occupancy_series)
    if not samples or not (capacity := max(_total(s, layers) for s in samples)):
        return None
    x = [axis_time(s.t, scene.zone) for s in samples]
    data = [
        area(
            x, [getattr(s, field) for s in samples], name, getattr(scene.palette, role), "%{y:.3s} tokens", 0.35 if name == "free" else 0.75
        )
        for name, field, role in layers
    ]
    yaxis = {"range": [0, capacity * 1.06], "tickformat": ".2~s", "nticks": 5}
    return over_time(scene, data, yaxis, capacity * 1.03)


def _summary(overview: Overview, layers: Layers) -> str:
    now = overview.occupancy
    if now is None or not (capacity := _total(now, layers)):
        return ""
    free = next(getattr(now, field) for name, field, _ in layers if name == "free")
    return f"{count(capacity - free)} of {count(capacity)} tokens in use ({percent(1 - free / capacity)})"


def _table(overview: Overview, layers: Layers) -> Table:
    fields: Sequence[str] = [field for _, field, _ in layers]
    return ["time_utc", *fields], [[utc(s.t).isoformat(), *(getattr(s, f) for f in fields)] for s in overview.occupancy_series]


def _keys(layers: Layers) -> tuple[tuple[str, str], ...]:
    return tuple((name, role) for name, _, role in layers)


DEVICE_PANEL = Panel(
    "device",
    "Device tier",
    "KV tokens on the device by state. Retired: every workflow that touched them has ended, evicted first. "
    "Locked: held by running calls and copies.",
    _keys(DEVICE),
    lambda s: _draw(s, DEVICE),
    lambda o: _summary(o, DEVICE),
    lambda o: _OFF,
    lambda o: _table(o, DEVICE),
)
HOST_PANEL = Panel(
    "host",
    "Host tier",
    "KV tokens in host memory. Active: copies of nodes that a live workflow touched.",
    _keys(HOST),
    lambda s: _draw(s, HOST),
    lambda o: _summary(o, HOST),
    lambda o: _NO_HOST if o.occupancy_series else _OFF,
    lambda o: _table(o, HOST),
)
