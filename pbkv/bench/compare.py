"""Comparing curves: the largest and least of a figure along them, and one line of the table beside the paper."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from pbkv.bench.experiment import Summary

#: A figure at (panel, x), None where there is none.
Value: TypeAlias = Callable[[str, float], float | None]


@dataclass(frozen=True)
class Finding:
    """One line of the table. `holds`: None where there is nothing to compare."""

    claim: str
    paper: str
    here: str
    where: str
    holds: bool | None


@dataclass(frozen=True)
class Best:
    """The largest value of a ratio or difference along the curves, and where it is."""

    value: float
    panel: str
    x: float

    @property
    def where(self) -> str:
        return f"{self.panel}, {self.x:g}"


def best(summary: Summary, panels: Iterable[str], value: Value, *, least: bool = False) -> Best | None:
    """Where `value(panel, x)` is largest (or least); None when there is no value at all."""
    found = [Best(v, panel, x) for panel in panels for x in summary.xs(panel) if (v := value(panel, x)) is not None]
    return (min if least else max)(found, key=lambda b: b.value, default=None)


def against(summary: Summary, ours: str, theirs: str, figure: str = "hit", *, ratio: bool = False) -> Value:
    """Difference (ratio) of a figure between two series at a place."""

    def value(panel: str, x: float) -> float | None:
        a, b = summary.mean(panel, ours, x, figure), summary.mean(panel, theirs, x, figure)
        if a is None or b is None:
            return None
        return a / b if ratio and b else a - b

    return value


def reach(claim: str, paper: float, found: Best | None, unit: str = "x") -> list[Finding]:
    """A gain that has to be reached somewhere on the curves."""
    if found is None:
        return []
    return [Finding(claim, f"{paper:g}{unit}", f"{found.value:.2f}{unit}", found.where, found.value >= paper)]


def gain(summary: Summary, series: str, figure: str) -> Value:
    """A figure of one series at a place."""
    return lambda panel, x: summary.mean(panel, series, x, figure)


def panels_of(summary: Summary, word: str) -> list[str]:
    """Panels whose name begins with `word`."""
    return [panel for panel in summary.panels if panel.startswith(word)]
