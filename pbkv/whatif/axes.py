"""Axes of a grid as people type them: lists and inclusive ranges, sizes with units, multiples of what was recorded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from pbkv.errors import UsageError
from pbkv.knobs import HOST_ORDERS, KNOBS, POLICIES, PREFETCH_MODES, Value
from pbkv.whatif.recording import Recording
from pbkv.whatif.units import COUNTS, PLAIN, SIZES, number

#: Values of one axis, and settings of a grid.
MAX_CELLS = 2000
_MAX_TEXT = 10_000


@dataclass(frozen=True)
class Axis:
    """One field of pbkv.whatif.setting.Setting. Texts have choices (none given: any name), numbers have units.

    `recorded`: the value that multiples such as x1.5 are of. `words`: names for numbers.
    """

    field: str
    option: str
    expected: str
    choices: tuple[str, ...] | None = None
    units: Mapping[str, int] | None = None
    integer: bool = True
    low: int = 0
    high: int = 1 << 40
    recorded: Callable[[Recording], int] | None = None
    words: Mapping[str, Callable[[Recording], int]] | None = None

    def values(self, text: str, recording: Recording) -> list[Value]:
        """The values of "a,b" or "start:stop:step" or both, without repetitions, in the order given. Raises UsageError."""
        if len(text) > _MAX_TEXT:
            raise UsageError(f"{self.option}: {len(text):,} characters: expected at most {_MAX_TEXT:,}")
        found: dict[Value, None] = {}
        for item in text.split(","):
            found |= dict.fromkeys(self._item(item.strip(), recording))
            if len(found) > MAX_CELLS:
                raise self._too_many(len(found))
        return list(found)

    def _item(self, item: str, recording: Recording) -> list[Value]:
        if self.units is None:
            if not item or (self.choices is not None and item not in self.choices):
                raise self._bad(item)
            return [item]
        if self.words and item in self.words:
            return [self.words[item](recording)]
        return [self._bounded(value, item) for value in self._numbers(item, recording)]

    def _numbers(self, item: str, recording: Recording) -> list[Decimal]:
        """One number or the numbers of a range; of multiples, what they come to."""
        parts = item.split(":")
        multiples = self.recorded is not None and all(part.strip().startswith("x") for part in parts)
        numbers = [number(part.strip()[1:], PLAIN) if multiples else number(part, self.units or PLAIN) for part in parts]
        known = [n for n in numbers if n is not None]
        if len(known) != len(parts) or len(parts) not in (1, 3):
            raise self._bad(item)
        values = known if len(known) == 1 else self._range(item, *known)
        return self._times(values, item, self.recorded(recording)) if multiples and self.recorded else values

    def _times(self, values: list[Decimal], item: str, recorded: int) -> list[Decimal]:
        if not recorded:
            raise UsageError(f"{self.option} {item!r}: none were recorded, of which this would be a multiple; give a number of tokens")
        return [Decimal(int(value * recorded)) for value in values]

    def _range(self, item: str, start: Decimal, stop: Decimal, step: Decimal) -> list[Decimal]:
        if step <= 0 or stop < start:
            raise UsageError(f"{self.option} {item!r}: expected START:STOP:STEP with START at most STOP and STEP above 0")
        count = int((stop - start) / step) + 1
        if count > MAX_CELLS:
            raise self._too_many(count)
        return [start + n * step for n in range(count)]

    def _bounded(self, value: Decimal, item: str) -> Value:
        if not self.low <= value <= self.high or (self.integer and value != int(value)):
            raise self._bad(item)
        return int(value) if self.integer else float(value)

    def _bad(self, item: str) -> UsageError:
        item = item if len(item) <= 60 else item[:57] + "..."
        return UsageError(f"{self.option} {item!r}: expected {self.expected}")

    def _too_many(self, count: int) -> UsageError:
        return UsageError(f"{self.option}: {count:,} values: expected at most {MAX_CELLS:,} in a grid; give fewer, or a larger step")


def link_budget(recording: Recording) -> int:
    """Bytes that the link moves in one decode step of a full batch, rounded down to whole MiB where that is one."""
    timing = recording.engine.timing
    moved = int(timing.link_bytes_per_s * timing.decode_s(recording.engine.max_running, recording.engine.device_tokens))
    return min(moved >> 20 << 20 or moved, int(KNOBS["prefetch_budget"].maximum or 0))


def _tokens(field: str, recorded: Callable[[Recording], int], low: int) -> Axis:
    option = field.replace("_", "-")
    none = ", 0 = none" if low == 0 else ""
    expected = f"tokens such as 500000, 500k, x1.5 (times the recorded) or x0.5:x2:x0.5{none}, separated by commas"
    return Axis(field, option, expected, units=COUNTS, low=low, recorded=recorded)


def _choice(field: str, choices: tuple[str, ...]) -> Axis:
    return Axis(field, field.replace("_", "-"), f"one or more of {', '.join(choices)}, separated by commas", choices)


AXES: dict[str, Axis] = {
    axis.field: axis
    for axis in (
        _choice("policy", POLICIES),
        Axis("gamma", "gamma", "numbers from 0 to 1, such as 0.8 or 0.5:1:0.1, separated by commas", units=PLAIN, integer=False, high=1),
        Axis("k", "k", "whole numbers from 1 to 8, such as 1,2,3 or 1:8:1", units=PLAIN, low=1, high=8),
        Axis(
            "prefetch_budget", "budget", "bytes per decode step such as 0, 64MiB or 16MiB:64MiB:16MiB, or link (what the link moves in a "
            "step), separated by commas", units=SIZES, words={"link": link_budget},
        ),
        _choice("prefetch", PREFETCH_MODES),
        _choice("host_order", HOST_ORDERS),
        _tokens("device_tokens", lambda recording: recording.engine.device_tokens, 1),
        _tokens("host_tokens", lambda recording: recording.engine.host_tokens, 0),
        Axis("concurrency", "concurrency", "workflows at a time, 1 to 100000, as 32,64 or 16:128:16", units=COUNTS, low=1, high=100_000),
        Axis("predictor", "predictor", "recorded, markov, uniform or folders of trained predictors, separated by commas"),
    )
}
