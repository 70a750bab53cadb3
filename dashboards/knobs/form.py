"""Answers of the knob form's callbacks as plain functions of what the page sent and what the engine has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from dashboards.knobs.spec import KnobSpec
from dashboards.knobs.staging import Staged, describe, form_value, staged, values
from dashboards.knobs.watch import Control
from pbkv.knobs import Value

Ids = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Loaded:
    """What the form was filled from. An edit names this version, so that nobody overwrites what they have not seen."""

    version: int
    values: dict[str, Value]

    @classmethod
    def of(cls, control: Control) -> "Loaded":
        return cls(control.version or 0, values(control.knobs))

    @classmethod
    def read(cls, data: Any) -> "Loaded | None":
        """From the page's store; None for anything else."""
        if not isinstance(data, dict):
            return None
        data = cast(dict[str, Any], data)
        if not isinstance(data.get("version"), int) or not isinstance(data.get("values"), dict):
            return None
        return cls(data["version"], data["values"])

    def data(self) -> dict[str, Any]:
        return {"version": self.version, "values": self.values}


def typed(ids: Ids, given: Sequence[Any]) -> dict[str, Any]:
    """Knob name -> what stands in its control."""
    return {i["knob"]: v for i, v in zip(ids, given, strict=True)}


def by_id(ids: Ids, found: Mapping[str, Any], missing: Any) -> list[Any]:
    """One entry per control, in the order of the page."""
    return [found.get(i["knob"], missing) for i in ids]


def controls(knobs: Sequence[KnobSpec], held: Mapping[str, Value]) -> dict[str, Value]:
    """Values as the controls hold them."""
    return {k.name: form_value(k, held[k.name]) for k in knobs if k.name in held}


def may_reload(control: Control, loaded: Loaded, on_page: Mapping[str, Any]) -> bool:
    """Whether newer values may replace what stands in the form: only when nobody is editing it."""
    return control.version is not None and control.version != loaded.version and not staged(control.knobs, loaded.values, on_page).any


def summary(control: Control, loaded: Loaded | None, on_page: Mapping[str, Any]) -> tuple[str, Staged, bool]:
    """Text of the staged line, the staged changes, and whether they may be applied."""
    if loaded is None:
        return "Nothing staged", Staged({}, {}), False
    now = staged(control.knobs, loaded.values, on_page)
    if now.errors:
        return f"Not applicable: {', '.join(now.errors)}", now, False
    if not now.changes:
        return "Nothing staged", now, False
    text = f"Staged on version {loaded.version}: {describe(control.knobs, loaded.values, now.changes)}"
    if control.version is not None and control.version != loaded.version:
        text += f". The engine is at version {control.version} by now: the change will be refused and the form reloaded."
    return text, now, control.error is None
