"""A knob as GET /pbkv/knobs describes it. The form is made from this alone, so that a newer engine's knobs are editable too."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.format import size
from pbkv.errors import UsageError
from pbkv.knobs import Value

_SIZE = re.compile(r"([0-9]*\.?[0-9]+)\s*(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB|K|M|G|T)?", re.IGNORECASE)
_FACTORS = {
    "": 1,
    "b": 1,
    **{p + s: 1024**n for n, p in enumerate("kmgt", 1) for s in ("", "ib")},
    **{p + "b": 1000**n for n, p in enumerate("kmgt", 1)},
}


@dataclass(frozen=True)
class KnobSpec:
    """One knob with its value in force."""

    name: str
    value: Value
    default: Value
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    integer: bool
    unit: str
    meaning: str

    @property
    def is_size(self) -> bool:
        """Bytes are shown and typed with a binary suffix."""
        return self.unit.split(" ")[0] == "bytes"

    @property
    def unit_text(self) -> str:
        """The unit beside a formatted value: the word bytes is in the suffix already."""
        return self.unit.removeprefix("bytes").strip() if self.is_size else self.unit

    def show(self, value: Value) -> str:
        """A value as a person reads and types it."""
        if self.is_size and isinstance(value, int | float):
            return size(value) if _exact(value) else f"{value:.0f}"
        return f"{value:g}" if isinstance(value, float) else str(value)

    @property
    def bounds(self) -> str:
        """What is accepted, in a few characters."""
        if self.choices:
            return " | ".join(self.choices)
        low, high = self.minimum or 0, self.maximum or 0
        return f"{size(low)} to {size(high)}" if self.is_size else f"{low:g} to {high:g}"

    def parse(self, typed: object) -> Value:
        """A value typed into the form. Raises UsageError that says what is expected."""
        if self.choices:
            if typed in self.choices:
                return str(typed)
            raise UsageError(f"expected one of {', '.join(self.choices)}")
        number = self._number(typed)
        if not (self.minimum or 0) <= number <= (self.maximum or 0) or (self.integer and number != int(number)):
            raise UsageError(self._expected())
        return int(number) if self.integer else number

    def _number(self, typed: object) -> float:
        if isinstance(typed, bool) or typed is None:
            raise UsageError(self._expected())
        if isinstance(typed, int | float):
            return float(typed)
        text = str(typed).strip()
        match = _SIZE.fullmatch(text) if self.is_size else None
        try:
            return float(match[1]) * _FACTORS[(match[2] or "").lower()] if match else float(text)
        except ValueError:
            raise UsageError(self._expected()) from None

    def _expected(self) -> str:
        kind = "a size such as 64 MiB," if self.is_size else "a whole number" if self.integer else "a number"
        return f"expected {kind} from {self.bounds}".replace("from from", "from")


def _exact(value: float) -> bool:
    """Whether the short form of a size stands for exactly this many bytes."""
    match = _SIZE.fullmatch(size(value))
    return match is not None and float(match[1]) * _FACTORS[(match[2] or "").lower()] == value


def read_specs(answer: Mapping[str, Any]) -> tuple[KnobSpec, ...]:
    """The knobs of an answer of GET /pbkv/knobs, in its order. Raises KeyError or TypeError when it is not one."""
    return tuple(
        KnobSpec(
            name=name,
            value=k["value"],
            default=k["default"],
            minimum=k["min"],
            maximum=k["max"],
            choices=tuple(k["choices"]),
            integer=bool(k["integer"]),
            unit=str(k["unit"]),
            meaning=str(k["meaning"]),
        )
        for name, k in answer["knobs"].items()
    )
