"""Forecasts in words, the same in both front ends."""

from collections.abc import Mapping

from pbkv.knobs import Value
from pbkv.whatif.forecast import Estimate
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.question import About
from pbkv.whatif.setting import KNOB_FIELDS, Setting
from pbkv.whatif.units import count, shown, size

_NAMES: dict[str, str] = {
    "hit": "hit rate", "ttft_p95": "TTFT p95", "moved_bytes": "bytes moved", "hit_device": "device hits", "hit_host": "host hits",
    "ttft_p50": "TTFT p50", "ttft_mean": "TTFT mean", "ttft_p99": "TTFT p99", "latency_mean": "workflow time",
    "calls_per_s": "throughput", "demand_bytes": "loaded back", "prefetch_bytes": "prefetched", "backup_bytes": "written back",
    "evicted_live": "evicted live", "evicted_retired": "evicted retired", "prefetches": "prefetches",
}
#: Figures as people call them, what matters most first.
NAMES = {**{name: said for name, said in _NAMES.items() if name in FIGURES}, **{n: n.replace("_", " ") for n in FIGURES if n not in _NAMES}}


def verdict(figure: str, estimate: Estimate) -> tuple[str, int]:
    """What a forecast says against the present, and +1 where that is better, -1 where it is worse, 0 where it is neither."""
    if not estimate.certain:
        return ("no change" if estimate.low == estimate.high else "within its error"), 0
    more, better = estimate.change > 0, FIGURES[figure].better
    if not better:
        return ("more" if more else "less"), 0
    return ("better", 1) if more == (better > 0) else ("worse", -1)


def interval(figure: str, estimate: Estimate) -> str:
    """Where the truth lies nine times in ten: 47.8 to 48.9 %; shares and times never below nothing."""
    unit = FIGURES[figure].unit
    low, high = (shown(max(value, 0.0), unit) for value in (estimate.low, estimate.high))
    head, mark, tail = low.partition("/" if unit == "1/s" else " ")
    return f"{head if mark and high.endswith(mark + tail) else low} to {high}"


def give_or_take(figure: str, estimate: Estimate) -> str:
    """Half of the interval, the larger one, in two digits: 0.4 of 52.1 % ±0.4. "" where there is no error."""
    error = max(estimate.high - estimate.value, estimate.value - estimate.low)
    if not error > 0:
        return ""
    text = shown(float(f"{error:.2g}"), FIGURES[figure].unit)
    value, _, unit = shown(estimate.value, FIGURES[figure].unit).rpartition(" ")
    return text.removesuffix(f" {unit}") if value else text


def basis(about: About) -> str:
    """What a forecast rests on: 10 min to 14:03:22 UTC, 3,120 calls (950 before them left out)."""
    span = f"{about.span_s / 60:.3g} min" if about.span_s >= 60 else f"{about.span_s:.0f} s"
    to = f" to {about.ended[11:19]} UTC" if about.ended else ""
    left = f" ({about.left_out:,} before them left out)" if about.left_out else ""
    return f"{span}{to}, {about.calls:,} {'call' if about.calls == 1 else 'calls'}{left}"


def brief(setting: Setting) -> str:
    """A setting in as few characters as say it: he gamma 0.6 device 30k."""
    return " ".join(_said(name, value) for name, value in setting.given.items()) or "as recorded"


def _said(name: str, value: Value) -> str:
    if name == "policy":
        return str(value)
    short = {"prefetch_budget": "budget", "device_tokens": "device", "host_tokens": "host", "host_order": "host by"}.get(name, name)
    if isinstance(value, str):
        return f"{short} {value}"
    return f"{short} {size(value) if name == 'prefetch_budget' else count(value) if name.endswith('tokens') else f'{value:g}'}"


def setting_of(knobs: Mapping[str, Value]) -> Setting:
    """The setting of these knobs; those that are no part of a forecast are left out. Raises UsageError for what cannot be."""
    return Setting(**{name: value for name, value in knobs.items() if name in KNOB_FIELDS})  # pyright: ignore[reportArgumentType]


def changes_of(setting: Setting, knobs: Mapping[str, Value]) -> tuple[dict[str, Value], list[str]]:
    """What to stage on `knobs` for `setting`, and what of it no knob of a running server can do."""
    staged = {name: value for name, value in setting.given.items() if name in KNOB_FIELDS and knobs.get(name) != value}
    return staged, [f"{name} {value}" for name, value in setting.given.items() if name not in KNOB_FIELDS]
