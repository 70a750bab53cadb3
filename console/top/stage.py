"""What is staged on the knobs in force, and how far one press of a key moves a knob. Pure logic of the Tune screen."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pbkv.control.tuning import KnobStates
from pbkv.errors import UsageError
from pbkv.knobs import KNOBS, Value
from pbkv.whatif.setting import KNOB_FIELDS, Setting
from pbkv.whatif.words import setting_of

#: Smallest budget above 0 that the keys reach, bytes; they double and halve it.
_LEAST_BUDGET = 1 << 20
_GAMMA_STEP = 0.05


@dataclass
class Stage:
    """`base`: the knobs in force, at `version`; `changes`: what is staged on them, never a value that is in force already.

    `version` 0: no server has said what is in force.
    """

    base: Mapping[str, Value]
    version: int
    changes: dict[str, Value] = field(default_factory=dict[str, Value])

    @classmethod
    def on(cls, states: KnobStates, changes: Mapping[str, Value] | None = None) -> "Stage":
        """On what the server says."""
        stage = cls({k.name: k.value for k in states.knobs}, states.version)
        for name, value in (changes or {}).items():
            stage.put(name, value)
        return stage

    @classmethod
    def unknown(cls, changes: Mapping[str, Value] | None = None) -> "Stage":
        """On the defaults, until the log says what was in force."""
        return cls({k.name: k.default for k in KNOBS.values()}, 0, dict(changes or {}))

    def value(self, name: str) -> Value:
        """As it would be."""
        return self.changes.get(name, self.base[name])

    def put(self, name: str, value: Value) -> None:
        """Stage a value."""
        self.changes[name] = value
        if self.base.get(name) == value:
            del self.changes[name]

    def type(self, name: str, text: str) -> None:
        """Stage what was typed. Raises UsageError and leaves what was staged."""
        if name not in KNOBS:
            raise UsageError(f"knob {name}: unknown to this console; update it")
        self.put(name, KNOBS[name].parse_text(text.strip()))

    def move(self, name: str, direction: int) -> None:
        """One step up or down; stops at the bounds, choices go round."""
        self.put(name, moved(name, self.value(name), direction))

    def undo(self, name: str) -> None:
        """Back to what is in force."""
        self.changes.pop(name, None)

    def rebase(self, base: Mapping[str, Value], version: int) -> None:
        """On newer knobs: what is staged stays, unless it is in force by now."""
        self.base, self.version = dict(base), version
        self.changes = {name: value for name, value in self.changes.items() if self.base.get(name) != value}

    @property
    def setting(self) -> Setting:
        """All knobs as they would be, for a forecast; those that are not known are as recorded."""
        return setting_of({**(self.base if self.version else {}), **self.changes})

    @property
    def unforecast(self) -> list[str]:
        """What is staged and is no part of a forecast."""
        return [name for name in self.changes if name not in KNOB_FIELDS]


def moved(name: str, value: Value, direction: int) -> Value:
    """The value one step from `value`; a knob without steps of its own stays."""
    knob = KNOBS[name]
    if knob.choices:
        return knob.choices[(knob.choices.index(str(value)) + direction) % len(knob.choices)]
    number = float(value)
    if name == "prefetch_budget":
        number = _doubled(number) if direction > 0 else _halved(number)
    else:
        number += direction * (_GAMMA_STEP if name == "gamma" else 1)
    return knob.parse(min(max(round(number, 9), knob.minimum or 0), knob.maximum or 0))


def _doubled(number: float) -> float:
    return max(_LEAST_BUDGET, 2 * number)


def _halved(number: float) -> float:
    return number // 2 if number >= 2 * _LEAST_BUDGET else 0
