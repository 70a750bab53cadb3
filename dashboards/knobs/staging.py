"""Pure logic of the knob form: what is staged against what the form was loaded from, and when it may be reloaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.knobs.spec import KnobSpec
from pbkv.errors import UsageError
from pbkv.knobs import Value


@dataclass(frozen=True)
class Staged:
    """Valid changes against the loaded values, and what is wrong with the invalid ones."""

    changes: dict[str, Value]
    errors: dict[str, str]

    @property
    def any(self) -> bool:
        return bool(self.changes or self.errors)


def staged(knobs: Sequence[KnobSpec], loaded: Mapping[str, Value], typed: Mapping[str, Any]) -> Staged:
    """Compare what is typed with what the form was loaded from. A knob that was not loaded cannot be staged."""
    result = Staged({}, {})
    for knob in knobs:
        if knob.name not in typed or knob.name not in loaded:
            continue
        try:
            value = knob.parse(typed[knob.name])
        except UsageError as error:
            result.errors[knob.name] = str(error)
            continue
        if value != loaded[knob.name]:
            result.changes[knob.name] = value
    return result


def values(knobs: Sequence[KnobSpec]) -> dict[str, Value]:
    """Name -> value in force."""
    return {k.name: k.value for k in knobs}


def form_value(knob: KnobSpec, value: Value) -> Value:
    """A value as the control of its knob holds it: sizes as text, the rest as it is."""
    return knob.show(value) if knob.is_size else value


def describe(knobs: Sequence[KnobSpec], old: Mapping[str, Value], new: Mapping[str, Value]) -> str:
    """gamma 0.8 → 0.6, k 3 → 2."""
    by_name = {k.name: k for k in knobs}
    return ", ".join(f"{n} {by_name[n].show(old[n])} → {by_name[n].show(v)}" for n, v in new.items() if n in by_name and n in old)


def others(history: Sequence[Mapping[str, Any]], since: int) -> str:
    """Who changed what after version `since`, in words, newest last."""
    parts = [
        f"{h['actor']} set {h['name']} {h['old']} → {h['new']} (version {h['version']}, step {h['step']:,}"
        + (f", “{h['reason']}”" if h.get("reason") else "")
        + ")"
        for h in history
        if int(h["version"]) > since
    ]
    return "; ".join(parts) or "the engine does not say who"
