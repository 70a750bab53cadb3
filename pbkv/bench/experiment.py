"""What an experiment is: cells with a place in a plot, and how their results over several workflow sets are summed up."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pbkv.bench.cell import Cell, Result

#: Figures that are better when smaller: their gain is base / value.
_SMALLER = ("ttft_mean", "latency_mean")


@dataclass(frozen=True)
class Point:
    """One place in a plot: panel, curve and x, and the cell that is run there for every seed."""

    panel: str
    series: str
    x: float
    cell: Cell


@dataclass(frozen=True)
class Experiment:
    """`base`: the series that gains are counted against."""

    name: str
    title: str
    x_label: str
    points: tuple[Point, ...]
    base: str = "lru"

    def cells(self, seeds: Iterable[int]) -> Iterable[Cell]:
        """Every cell to run."""
        for seed in seeds:
            for point in self.points:
                yield replace(point.cell, seed=seed)


@dataclass(frozen=True)
class Spread:
    """Mean and extremes over workflow sets."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(values: Iterable[float]) -> "Spread":
        found = list(values)
        return Spread(statistics.fmean(found), min(found), max(found))


@dataclass(frozen=True)
class Summary:
    """An experiment's figures: `figures[panel, series, x][name]` over the seeds. Gains against the base series of the same panel, x and
    seed are there as ttft_gain, latency_gain and hit_gain (differences in points).
    """

    experiment: Experiment
    figures: Mapping[tuple[str, str, float], Mapping[str, Spread]]

    @property
    def panels(self) -> list[str]:
        return list(dict.fromkeys(p.panel for p in self.experiment.points))

    def series(self, panel: str) -> list[str]:
        """Curves of a panel, in the order of the experiment."""
        return list(dict.fromkeys(p.series for p in self.experiment.points if p.panel == panel))

    def xs(self, panel: str) -> list[float]:
        """Places along the curves of a panel, ascending."""
        return sorted({p.x for p in self.experiment.points if p.panel == panel})

    def mean(self, panel: str, series: str, x: float, name: str = "hit") -> float | None:
        """Mean of a figure over the seeds; None where the experiment has no such point."""
        spread = self.figures.get((panel, series, x), {}).get(name)
        return None if spread is None else spread.mean


def summarise(experiment: Experiment, results: Mapping[Cell, Result], seeds: Iterable[int]) -> Summary:
    """Figures over the seeds of all points; `results` by plain cell."""
    seeds = list(seeds)
    runs = {(p.panel, p.series, p.x): [results[replace(p.cell, seed=seed).plain()] for seed in seeds] for p in experiment.points}
    figures: dict[tuple[str, str, float], Mapping[str, Spread]] = {}
    for (panel, series, x), found in runs.items():
        names = found[0].keys()
        spreads = {name: Spread.of(result[name] for result in found) for name in names}
        base = runs.get((panel, experiment.base, x))
        if base is not None:
            timed = [n for n in _SMALLER if n in names]  # a replay has no times
            spreads |= {f"{n.split('_')[0]}_gain": Spread.of(b[n] / r[n] for b, r in zip(base, found, strict=True)) for n in timed}
            spreads["hit_gain"] = Spread.of(r["hit"] - b["hit"] for b, r in zip(base, found, strict=True))
        figures[panel, series, x] = spreads
    return Summary(experiment, figures)
