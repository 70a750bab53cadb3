"""Cells of a grid as curves over one axis and as maps over two, for whoever draws them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pbkv.knobs import Value
from pbkv.whatif.forecast import Estimate
from pbkv.whatif.question import Found
from pbkv.whatif.setting import Setting
from pbkv.whatif.words import brief

#: Axes with numbers, in the order in which a curve is drawn over them.
NUMERIC = ("device_tokens", "host_tokens", "prefetch_budget", "concurrency", "gamma", "k")
#: Curves of one picture; more are not told apart.
MOST_LINES = 8


@dataclass(frozen=True)
class Line:
    """A curve: (place on the axis, estimate) in order of the axis. `flat`: no value of the axis makes a difference to it."""

    label: str
    points: tuple[tuple[float, Estimate], ...]
    flat: bool = False


@dataclass(frozen=True)
class Map:
    """`cells[row][column]`, None where there is none."""

    rows: tuple[Value, ...]
    columns: tuple[Value, ...]
    cells: tuple[tuple[Estimate | None, ...], ...]


def values(cells: Sequence[Found]) -> dict[str, list[Value]]:
    """Field -> its values, of the fields with more than one among the cells; numbers in order, texts as they come."""
    found: dict[str, dict[Value, None]] = {}
    for cell in cells:
        for name, value in cell.setting.given.items():
            found.setdefault(name, {})[value] = None
    several = {name: list(seen) for name, seen in found.items() if len(seen) > 1}
    return {name: sorted(seen, key=float) if name in NUMERIC else seen for name, seen in several.items()}


def numeric_axes(cells: Sequence[Found]) -> list[str]:
    """Axes that a curve can be drawn over."""
    there = values(cells)
    return [name for name in NUMERIC if name in there]


def lines(cells: Sequence[Found], axis: str, figure: str) -> list[Line]:
    """A curve for every combination of the other fields, those first that were asked first, at most MOST_LINES."""
    several = values(cells)
    everywhere = several.get(axis, [])
    groups: dict[Setting, dict[float, Estimate]] = {}
    flat: set[Setting] = set()
    for cell in cells:
        given, estimate = cell.setting.given, cell.estimates.get(figure)
        if estimate is None:
            continue
        group = replace(cell.setting, **{name: None for name in given if name == axis or name not in several})
        if axis in given:
            groups.setdefault(group, {})[float(given[axis])] = estimate
        elif everywhere:
            groups.setdefault(group, {}).update((float(value), estimate) for value in everywhere)
            flat.add(group)
    _spread(groups)
    return [
        Line(brief(group) if group.given else "forecast", tuple(sorted(points.items())), group in flat)
        for group, points in list(groups.items())[:MOST_LINES]
    ]


def maps(cells: Sequence[Found], row: str, column: str, figure: str) -> dict[str, Map]:
    """A map for every combination of the other fields, by its label, at most MOST_LINES."""
    several = values(cells)
    rows, columns = several.get(row, []), several.get(column, [])
    groups: dict[str, dict[tuple[Value, Value], Estimate]] = {}
    for cell in cells:
        given, estimate = cell.setting.given, cell.estimates.get(figure)
        if estimate is None or (row not in given and column not in given):
            continue
        others = replace(cell.setting, **{name: None for name in given if name in (row, column) or name not in several})
        label = brief(others) if others.given else ""
        # A field that nothing reads was left out of the setting: the cell holds for all its values.
        for r in [given[row]] if row in given else rows:
            for c in [given[column]] if column in given else columns:
                groups.setdefault(label, {})[r, c] = estimate
    return {
        label: Map(tuple(rows), tuple(columns), tuple(tuple(found.get((r, c)) for c in columns) for r in rows))
        for label, found in list(groups.items())[:MOST_LINES]
    }


def _spread(groups: dict[Setting, dict[float, Estimate]]) -> None:
    """A field that nothing reads was left out of a setting: its point belongs to the curves of all values of that field."""
    for group in list(groups):
        wider = [other for other in groups if other is not group and group.given and group.given.items() < other.given.items()]
        for other in wider:
            groups[other] = {**groups[group], **groups[other]}
        if wider:
            del groups[group]
