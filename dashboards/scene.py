"""What a panel draws from: the data and how the viewer wants to see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta, tzinfo
from functools import lru_cache
from typing import TypeVar
from zoneinfo import ZoneInfo

from collector.views.models import KnobChange, Overview
from dashboards.format import axis_time, utc
from dashboards.palette import BY_SCHEME, DARK, Palette

T = TypeVar("T")
#: Most points of one series in one figure; more would not be seen and would cost every open page.
MAX_POINTS = 300


@dataclass(frozen=True)
class Scene:
    """One overview in one theme and one time zone."""

    overview: Overview
    palette: Palette
    zone: tzinfo

    @property
    def span(self) -> list[str]:
        """Start and end of the shared time axis."""
        now = self.overview.now
        return [axis_time(now - timedelta(seconds=self.overview.window_s), self.zone), axis_time(now, self.zone)]

    @property
    def changes(self) -> list[list[KnobChange]]:
        """Knob changes inside the window, oldest first, one list per version."""
        start = utc(self.overview.now) - timedelta(seconds=self.overview.window_s)
        by_version: dict[int, list[KnobChange]] = {}
        for change in reversed(self.overview.knob_changes):
            if utc(change.t) >= start:
                by_version.setdefault(change.version, []).append(change)
        return list(by_version.values())


def palette(scheme: str) -> Palette:
    """The palette of a colour scheme; an unknown one is dark."""
    return BY_SCHEME.get(scheme, DARK)


@lru_cache(maxsize=64)
def zone(name: str) -> tzinfo:
    """The time zone a browser named; one this machine does not know is UTC."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return UTC


def thin(points: Sequence[T], limit: int = MAX_POINTS) -> Sequence[T]:
    """At most `limit` evenly spaced points; the newest always stays."""
    if len(points) <= limit:
        return points
    stride = -(-len(points) // limit)
    return points[(len(points) - 1) % stride :: stride]
