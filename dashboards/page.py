"""What one open page has been shown, so that only what changed is sent to it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from dash import html
from plotly.utils import PlotlyJSONEncoder

from collector.views.models import Overview
from dashboards import verdict
from dashboards.feed import Snapshot
from dashboards.format import clock, number
from dashboards.knobs import recorded as recording
from dashboards.knobs.edit import note
from dashboards.knobs.watch import Control
from dashboards.panels import board
from dashboards.panels.panel import Props
from dashboards.scene import Scene, palette, zone
from dashboards.site import Site
from dashboards.windows import seconds


@dataclass(frozen=True)
class Prefs:
    """How the viewer wants to see the page; comes from the browser, so anything may stand in it."""

    window_s: float
    paused: bool
    hidden: bool
    scheme: str
    zone: str
    page: str = ""

    @classmethod
    def read(cls, data: Any) -> "Prefs | None":
        """None while the page has not said yet."""
        if not isinstance(data, dict):
            return None
        data = cast(dict[str, Any], data)
        return cls(
            seconds(data.get("window")),
            data.get("paused") is True,
            data.get("hidden") is True,
            str(data.get("scheme")),
            str(data.get("zone")),
            str(data.get("page") or "")[:40],
        )


class Page:
    """The state of one page's stream. `known`: values the page already holds, (component id, property) -> value."""

    def __init__(self, site: Site, known: dict[tuple[str, str], Any] | None = None) -> None:
        self._site = site
        self._sent: dict[tuple[str, str], Any] = dict(known or {})
        self._drawn: tuple[Overview, Prefs] | None = None
        self._beat = 0

    def changes(self, prefs: Prefs) -> Iterator[tuple[str, dict[str, Any]]]:
        """(component id, properties) to set now."""
        snapshot = self._site.feed.want(prefs.window_s)
        overview = self._shown(snapshot, prefs)
        yield from self._differing(self._frame(snapshot, overview, prefs))
        yield from self._differing(knob_props(self._site, snapshot))
        yield from self._differing(self._run(prefs))
        if overview is None or prefs.hidden or self._is_drawn(overview, prefs):
            return
        self._drawn = (overview, prefs)
        yield from self._differing(board.props(Scene(overview, palette(prefs.scheme), zone(prefs.zone))))

    def _run(self, prefs: Prefs) -> Props:
        """How far the page's grid is. Asked at every look, so that the grid of a page that has left is given up."""
        self._site.runs.seen(prefs.page)
        running = self._site.runs.live(prefs.page)
        return {} if running is None else {"wi-live": {"data": running}}

    def _shown(self, snapshot: Snapshot | None, prefs: Prefs) -> Overview | None:
        """The newest overview; on a paused page the one it was paused at, until another window is picked."""
        latest = snapshot.overview if snapshot else None
        if prefs.paused and self._drawn is not None and (latest is None or self._drawn[1].window_s == prefs.window_s):
            return self._drawn[0]
        return latest

    def _is_drawn(self, overview: Overview, prefs: Prefs) -> bool:
        # Pausing alone redraws nothing: an equal look at the same overview is what stands there already.
        return self._drawn is not None and self._drawn[0] is overview and replace(self._drawn[1], paused=prefs.paused) == prefs

    def _frame(self, snapshot: Snapshot | None, overview: Overview | None, prefs: Prefs) -> Props:
        self._beat += 1
        badge = verdict.badge(snapshot)
        return {
            "beat": {"children": str(self._beat)},
            "badge": {"children": badge.text, "className": f"badge {badge.tone}"},
            "banner": {"children": banner(verdict.banner(snapshot, self._site.source))},
            "verdict": {"children": verdict.line(overview)},
            "server": {"children": server_line(overview)},
            "as-of": {"children": as_of(overview, prefs)},
        }

    def _differing(self, props: Props) -> Iterator[tuple[str, dict[str, Any]]]:
        for component, values in props.items():
            new = {name: v for name, v in values.items() if (component, name) not in self._sent or self._sent[component, name] != v}
            if new:
                self._sent.update({(component, name): v for name, v in new.items()})
                yield component, new


def knob_props(site: Site, snapshot: Snapshot | None) -> Props:
    """The knob card's part: its shape (which rebuilds the form), its state (which refreshes it), its note."""
    control = site.watch.state
    overview = snapshot.overview if snapshot else None
    recorded = overview is not None and overview.status == "recorded"
    shape = [control.url, [[k.name, k.minimum, k.maximum, list(k.choices), k.unit] for k in control.knobs]] if control.knobs else None
    past = recording.rows(overview.knob_changes) if overview is not None and shape is None else []
    return {
        "knob-shape": {"data": shape},
        "knob-live": {"data": {"url": control.url, "version": control.version, "step": control.step, "error": control.error}},
        "knob-version": {"children": in_force(control) or ("last values on record" if past else "")},
        "knob-note": {
            "children": note(control, recorded=recorded, readonly=site.readonly),
            "className": "knob-note" + (" bad" if control.error else ""),
        },
        "knob-past": {"children": plain(past)},
        **({} if site.readonly else {"knob-footer": {"style": {"display": "grid" if shape else "none"}}}),
    }


def in_force(control: Control) -> str:
    """Version and the step at which it took effect."""
    if control.version is None:
        return ""
    return f"version {control.version} · " + (f"since step {number(control.step)}" if control.step else "since start")


def banner(shown: verdict.Banner | None) -> Any:
    """The banner; nothing when all is well."""
    if shown is None:
        return ""
    return plain(html.Div([html.Strong(shown.title), html.Span(shown.text)], className=f"banner {shown.tone}", role="alert"))


def plain(components: Any) -> Any:
    """Components as JSON: equal content compares equal between refreshes, which component objects do not."""
    return json.loads(json.dumps(components, cls=PlotlyJSONEncoder))


def server_line(overview: Overview | None) -> str:
    """server · engine · model · step."""
    if overview is None or (server := overview.server) is None:
        return ""
    others = len(overview.servers) - 1
    more = f" · {others} more in this store" if others > 0 else ""
    return " · ".join(part for part in (server.name, server.engine, server.model, f"step {number(server.step)}") if part) + more


def as_of(overview: Overview | None, prefs: Prefs) -> str:
    """The moment the numbers end at, in the viewer's zone."""
    if overview is None:
        return ""
    where = zone(prefs.zone)
    return f"as of {clock(overview.now, where, with_date=overview.status == 'recorded')} {where.tzname(overview.now) or ''}".strip()
