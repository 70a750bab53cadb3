"""The best setting under a constraint, and those that no other is better than in everything."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pbkv.errors import UsageError
from pbkv.whatif.forecast import Estimate
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.units import number, units_of

#: What a setting is weighed by unless something else is said.
WEIGHED = ("hit", "ttft_p95", "moved_bytes")
_MOST_LIMITS = 8
_LIMIT = re.compile(r"\s*([a-z_0-9]{1,40})\s*(<=|>=|<|>)\s*([^<>=]{1,40})")


@dataclass(frozen=True)
class Limit:
    """A figure has to stay below (`most`) or above a value; the value itself is allowed."""

    figure: str
    most: bool
    value: float

    def holds(self, estimate: Estimate) -> bool:
        """By the estimate's value."""
        return estimate.value <= self.value if self.most else estimate.value >= self.value

    def surely(self, estimate: Estimate) -> bool:
        """Wherever in its interval the truth is."""
        return estimate.high <= self.value if self.most else estimate.low >= self.value


class Choice(NamedTuple):
    """The setting at `place`. `sure`: it keeps the limits wherever in its intervals the truth is."""

    place: int
    sure: bool


def parse_limits(text: str, option: str = "under") -> tuple[Limit, ...]:
    """"ttft_p95<800ms, hit>50%" as limits; none for nothing. Raises UsageError."""
    parts = [part for part in text.split(",") if part.strip()]
    if len(parts) > _MOST_LIMITS:
        raise UsageError(f"{option}: {len(parts)} limits: expected up to {_MOST_LIMITS}")
    return tuple(_limit(part, option) for part in parts)


def _limit(text: str, option: str) -> Limit:
    match = _LIMIT.fullmatch(text.rstrip())
    figure = match[1] if match else ""
    value = number(match[3], units_of(FIGURES[figure].unit)) if match and figure in FIGURES else None
    if match is None or value is None:
        names = ", ".join(FIGURES)
        raise UsageError(f"{option} {text.strip()[:60]!r}: expected FIGURE<VALUE or FIGURE>VALUE, such as ttft_p95<800ms; figures: {names}")
    return Limit(figure, match[2].startswith("<"), float(value))


def parse_figure(text: str, option: str = "best") -> str:
    """The name of a figure of which more or less is better. Raises UsageError."""
    name = text.strip()
    if name not in FIGURES or not FIGURES[name].better:
        names = ", ".join(figure.name for figure in FIGURES.values() if figure.better)
        raise UsageError(f"{option} {name[:60]!r}: expected one of {names}")
    return name


#: Figure -> estimate, of one setting; empty for one that was refused.
Estimates = Mapping[str, Estimate]


def best(cells: Sequence[Estimates], limits: Sequence[Limit], figure: str) -> Choice | None:
    """The cell with the best `figure` among those that surely keep all limits, or else among those that keep them by their values.

    None: nothing keeps them. Of equals the first.
    """
    for sure in (True, False):
        kept = [n for n, cell in enumerate(cells) if figure in cell and _keeps(cell, limits, sure)]
        if kept:
            return Choice(min(kept, key=lambda n: -FIGURES[figure].better * cells[n][figure].value), sure)
    return None


def _keeps(cell: Estimates, limits: Sequence[Limit], sure: bool) -> bool:
    found = [(limit, cell.get(limit.figure)) for limit in limits]
    return all(e is not None and (limit.surely(e) if sure else limit.holds(e)) for limit, e in found)


def undominated(cells: Sequence[Estimates], figures: Sequence[str] = WEIGHED) -> list[int]:
    """Places of the cells that no other beats in one of `figures` and equals or beats in all the others, by their values."""
    weighed = [
        (n, tuple(-FIGURES[f].better * cell[f].value for f in figures))
        for n, cell in enumerate(cells) if all(f in cell for f in figures)
    ]
    return [n for n, mine in weighed if not any(_beats(other, mine) for _, other in weighed)]


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
