"""Idle windows of the host-device link: what could have been moved against what was."""

from collector.views.models import Overview
from dashboards.figure import Figure, axis, figure, hbar
from dashboards.format import millis, percent, plural, size
from dashboards.panels.panel import Panel, Table
from dashboards.scene import Scene


def _draw(scene: Scene) -> Figure | None:
    w = scene.overview.windows
    if not w.count:
        return None
    labels = ["device → host", "host → device", "capacity"]
    values = [w.d2h_bytes, w.h2d_bytes, w.capacity_bytes]
    top = max(*values, 1)
    share = [f"{size(v)} ({percent(v / w.capacity_bytes)})" if w.capacity_bytes else size(v) for v in values[:2]]
    colors = [scene.palette.host, scene.palette.device, scene.palette.free]
    hover = [
        f"moved to the host: {share[0]}",
        f"moved to the device: {share[1]}",
        f"could have been moved each way: {size(w.capacity_bytes)}",
    ]
    bars = hbar(labels, [v / top for v in values], "", colors, [*share, size(w.capacity_bytes)], hover)
    return figure(
        scene.palette,
        [bars],
        margin={"l": 104, "r": 14, "t": 8, "b": 26},
        yaxis=axis(scene.palette, showgrid=False),
        xaxis=axis(scene.palette, range=[0, 1.3], tickvals=[0, 0.5, 1], ticktext=["0", size(top / 2), size(top)]),
    )


def _summary(overview: Overview) -> str:
    w = overview.windows
    if not w.count:
        return ""
    return f"{plural(w.count, 'idle window')} · {millis(w.total_ms)} in all · median {millis(w.p50_ms)}"


def _table(overview: Overview) -> Table:
    w = overview.windows
    header = ["windows", "total_ms", "p50_ms", "capacity_bytes", "host_to_device_bytes", "device_to_host_bytes"]
    return header, [[w.count, w.total_ms, w.p50_ms, w.capacity_bytes, w.h2d_bytes, w.d2h_bytes]]


def used_share(overview: Overview) -> str:
    """Host-to-device bytes moved in idle windows as a share of what fitted, for the tile."""
    w = overview.windows
    return percent(w.h2d_bytes / w.capacity_bytes) if w.capacity_bytes else percent(None)


def used_text(overview: Overview) -> str:
    """The same in bytes."""
    w = overview.windows
    return f"{size(w.h2d_bytes)} of {size(w.capacity_bytes)}" if w.count else "no idle windows"


PANEL = Panel(
    "link",
    "Idle link",
    "Windows of pure decode with no copy in flight: the time prefetches may use. Capacity = link bandwidth x idle time.",
    "bytes moved while the link was idle, against what fitted",
    _draw,
    _summary,
    lambda o: "No idle window of the host-device link in this window. They open in pure-decode steps of an engine with a host tier.",
    _table,
)
