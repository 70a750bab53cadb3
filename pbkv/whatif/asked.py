"""The form of a grid, the same in both front ends: its fields, what they begin with, and what they say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pbkv.errors import UsageError
from pbkv.knobs import HOST_ORDERS, POLICIES, PREFETCH_MODES
from pbkv.whatif.choice import Limit, parse_figure, parse_limits
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.service import MOST_SPAN_S
from pbkv.whatif.units import SECONDS, number


class Field(NamedTuple):
    """A line of the form. `words`: what may stand in it, where that is a choice."""

    label: str
    example: str
    words: tuple[str, ...] = ()


#: Axes, by the names of pbkv.whatif.axes.
AXES = {
    "policy": Field("policy", "lru,he,first_use", POLICIES),
    "device_tokens": Field("device-tokens", "x0.5,x1,x2"),
    "gamma": Field("gamma", "0.5:1:0.1"),
    "host_tokens": Field("host-tokens", "x0.5,x1,x2"),
    "k": Field("k", "1,2,3,4"),
    "concurrency": Field("concurrency", "16,32"),
    "prefetch_budget": Field("budget", "0,64MiB,link"),
    "prefetch": Field("prefetch", "off,conservative", PREFETCH_MODES),
    "host_order": Field("host-order", "recency,score", HOST_ORDERS),
}
FIELDS = {
    **AXES,
    "last": Field("last", "10m"),
    "under": Field("under", "ttft_p95<800ms"),
    "best": Field("best", "moved_bytes", tuple(f.name for f in FIGURES.values() if f.better)),
}
#: What the form begins with.
DEFAULTS = {"policy": "lru,lae,he,first_use", "gamma": "0.6:1:0.2", "k": "1,3,5", "last": "10m", "best": "hit"}
#: Characters of one field.
MOST_TEXT = 200


@dataclass(frozen=True)
class Asked:
    """What a form says."""

    axes: dict[str, str]
    span_s: float
    limits: tuple[Limit, ...]
    under: str
    best: str


def asked(form: Mapping[str, str]) -> Asked:
    """Raises UsageError for what can be told to be wrong without the recording, except in the axes themselves."""
    texts = {field: text for field, value in form.items() if (text := value.strip()[:MOST_TEXT])}
    axes = {field: texts[field] for field in AXES if field in texts}
    under, best = texts.get("under", ""), texts.get("best", DEFAULTS["best"])
    return Asked(axes, _span(texts.get("last", DEFAULTS["last"])), parse_limits(under), under, parse_figure(best))


def _span(text: str) -> float:
    seconds = number(text, {**SECONDS, "h": 3600})  # pyright: ignore[reportArgumentType]
    if seconds is None or not 1 <= seconds <= MOST_SPAN_S:
        raise UsageError(f"last {text!r}: expected a time such as 90s, 10m or 2h, up to {MOST_SPAN_S / 3600:g}h")
    return float(seconds)
