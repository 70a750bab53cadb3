"""The tuning flow both front ends share: read the knobs with their last change, apply a change, say who was faster when it is stale."""

from dataclasses import dataclass
from typing import Any

from pbkv.control.client import ControlClient
from pbkv.errors import PbkvError, StaleVersion
from pbkv.knobs import KNOBS, Value


@dataclass(frozen=True)
class LastChange:
    """The newest change of one knob: the version it made, the scheduler step it took effect at, and who asked why."""

    version: int
    step: int
    old: Value
    actor: str
    source: str
    reason: str


@dataclass(frozen=True)
class KnobState:
    """One knob of a server. `expected` says in words what a value has to be; `changed` is None when it was never changed."""

    name: str
    value: Value
    default: Value
    unit: str
    meaning: str
    expected: str
    changed: LastChange | None


@dataclass(frozen=True)
class KnobStates:
    """All knobs of a server at one version; `step` is where that version took effect."""

    version: int
    step: int
    knobs: tuple[KnobState, ...]

    def find(self, name: str) -> KnobState:
        return next(k for k in self.knobs if k.name == name)


@dataclass(frozen=True)
class Applied:
    """A change that took effect: (name, old, new) of each knob."""

    version: int
    step: int
    changes: tuple[tuple[str, Value, Value], ...]


def load_knobs(client: ControlClient, previous: KnobStates | None = None) -> KnobStates:
    """The knobs now; `previous` is returned as it is when the server still has its version. Raises like ControlClient."""
    answer = client.knobs()
    if previous is not None and _same(previous, answer):
        return previous
    newest = {h["name"]: _change(h) for h in client.history()}
    knobs = tuple(_state(name, k, newest.get(name)) for name, k in answer["knobs"].items())
    return KnobStates(answer["version"], answer["step"], knobs)


def _same(previous: KnobStates, answer: dict[str, Any]) -> bool:
    # A restarted server counts versions from 1 again, so equal versions alone do not mean equal knobs.
    values = {name: k["value"] for name, k in answer["knobs"].items()}
    return (previous.version, previous.step) == (answer["version"], answer["step"]) and {k.name: k.value for k in previous.knobs} == values


def apply_change(
    client: ControlClient, changes: dict[str, Value], *, if_version: int | None = None, reason: str = "", expires_s: float | None = None,
) -> Applied:
    """Apply `changes`, all or none. A stale `if_version` raises StaleVersion with a sentence that names whose change came first."""
    try:
        answer = client.set(changes, if_version=if_version, reason=reason, expires_s=expires_s)
    except StaleVersion as error:
        raise StaleVersion(_explain(client, str(error))) from None
    return _applied(answer)


def revert_change(client: ControlClient, reason: str = "") -> Applied:
    """Undo the newest set of changes. Raises UsageError when there is none."""
    return _applied(client.revert(reason))


def _applied(answer: dict[str, Any]) -> Applied:
    return Applied(answer["version"], answer["step"], tuple((c["name"], c["old"], c["new"]) for c in answer["changes"]))


def _change(h: dict[str, Any]) -> LastChange:
    return LastChange(h["version"], h["step"], h["old"], h["actor"], h["source"], h["reason"])


def _state(name: str, k: dict[str, Any], changed: LastChange | None) -> KnobState:
    # A newer server may have knobs this console does not know; they are shown with what the server says of them.
    known = KNOBS.get(name)
    expected = known.expected if known else ", ".join(k["choices"]) or f"{k['min']:g} to {k['max']:g}"
    return KnobState(name, k["value"], k["default"], k["unit"], k["meaning"], expected, changed)


def _explain(client: ControlClient, sentence: str) -> str:
    try:
        history = client.history()
    except PbkvError:
        return sentence
    if not history:
        return sentence
    newest = [h for h in history if h["version"] == history[-1]["version"]]
    what = ", ".join(f"{h['name']} {h['old']} -> {h['new']}" for h in newest)
    return f"{sentence} (version {newest[0]['version']} was set by {newest[0]['actor']}: {what})"
