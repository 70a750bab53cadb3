"""Traces as recordings: what they lack, pools and a setting, comes from the first setting that is asked about."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from pbkv.engine.timing import Roofline
from pbkv.errors import UsageError
from pbkv.whatif.axes import AXES
from pbkv.whatif.grid import parse_axes
from pbkv.whatif.recording import Recording
from pbkv.whatif.setting import KNOB_FIELDS, Setting
from pbkv.whatif.sources import check_policy, names_agents, open_trace, timing_of
from pbkv.whatif.units import number
from pbkv.workloads.layouts import LayoutName

#: Concurrency of traces without start times, unless one is asked for.
CONCURRENCY = 32


@dataclass(frozen=True)
class TraceOptions:
    """How a trace is read: tokens of a page, whose speed it is served with, and how many workflows of it."""

    page_size: int = 64
    timing: str = "linear"
    layout: str = "group"
    workflows: int | None = None


def open_as_recording(path: str, given: Mapping[str, str], options: TraceOptions) -> Recording:
    """A trace at the first setting of the grid, which the others are compared with. Raises UsageError."""
    if options.layout not in get_args(LayoutName):
        raise UsageError(f"--layout {options.layout!r}: expected one of {', '.join(get_args(LayoutName))}")
    if not 1 <= options.page_size <= 4096:
        raise UsageError(f"--page-size {options.page_size}: expected 1 to 4096 tokens")
    device, host = _pool("device_tokens", given), _pool("host_tokens", given)
    recording = open_trace(
        path, device_tokens=device or _fitting(options.timing), host_tokens=host or 0, page_size=options.page_size, timing=options.timing,
        concurrency=_first("concurrency", given) or CONCURRENCY, workflows=options.workflows, layout=options.layout,  # type: ignore[arg-type]
    )
    return _at_first(recording, given)


def _fitting(timing: str) -> int:
    """The device pool of a model on its GPU. Raises UsageError for a timing that is of none."""
    of = timing_of(timing)
    if isinstance(of, Roofline):
        return of.device_tokens()
    raise UsageError("a trace has no pools of its own: give the device tier's with --device-tokens, such as 500k, or --timing MODEL@GPU")


def _pool(field: str, given: Mapping[str, str]) -> int | None:
    """The first size on an axis. A trace has none that multiples could be of."""
    text = given.get(field)
    if text is not None and text.lstrip().startswith("x"):
        raise UsageError(f"--{AXES[field].option} {text[:60]!r}: a trace has no pools of its own; give tokens, such as 500k")
    return _first(field, given)


def _first(field: str, given: Mapping[str, str]) -> int | None:
    """The first number on an axis, None for none; what is wrong with others is said where the grid is made."""
    axis = AXES[field]
    found = number(given.get(field, "").split(",")[0].split(":")[0], axis.units or {})
    return int(found) if found is not None and axis.low <= found <= axis.high else None


def _at_first(recording: Recording, given: Mapping[str, str]) -> Recording:
    """The recording as if it had been made at the first setting. Without agents and an axis of policies: at a policy that needs none."""
    if "policy" not in given and not names_agents(recording):
        recording = replace(recording, knobs={**recording.knobs, "policy": "lae"})
    settings = parse_axes(given, recording)
    for setting in settings or [Setting()]:
        check_policy(recording, str(setting.policy or recording.knobs["policy"]))
    if not settings:
        return recording
    first = settings[0].given
    knobs = {**recording.knobs, **{name: value for name, value in first.items() if name in KNOB_FIELDS}}
    return replace(recording, knobs=knobs, predictor=str(first.get("predictor", recording.predictor)))
