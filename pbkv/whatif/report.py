"""A grid that was run: how well the recorded setting is replayed, which setting is best, and all of it for scripts."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from pbkv.whatif.choice import WEIGHED, Choice, Limit, best, undominated
from pbkv.whatif.forecast import Estimate
from pbkv.whatif.grid import plain
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.recording import Recording
from pbkv.whatif.run import Grid, GridCell
from pbkv.whatif.setting import Setting
from pbkv.whatif.units import change, shown
from pbkv.whatif.words import NAMES

#: Figures that are shown as they are, and those shown as changes against the present.
COLUMNS = ("hit_device", "hit_host", "ttft_p50", "ttft_p95", "moved_bytes")
CHANGES = WEIGHED
#: Differences that are not told from none.
WITHIN = "~"


@dataclass(frozen=True)
class Report:
    """A grid with what it is to be judged by. `source` and `window` as people know them; `sort`: a figure, "" = as asked."""

    grid: Grid
    source: str
    window: str = ""
    limits: tuple[Limit, ...] = ()
    figure: str = "hit"
    sort: str = ""

    @cached_property
    def found(self) -> list[GridCell]:
        """Cells with a forecast, in the order of the report."""
        cells = [cell for cell in self.grid.cells if cell.forecast is not None]
        return sorted(cells, key=self._rank) if self.sort else cells

    def _rank(self, cell: GridCell) -> float:
        estimate = estimates_of(cell).get(self.sort)
        return math.inf if estimate is None else -FIGURES[self.sort].better * estimate.value

    @property
    def failed(self) -> list[GridCell]:
        """Cells without one."""
        return [cell for cell in self.grid.cells if cell.forecast is None]

    @cached_property
    def presents(self) -> frozenset[int]:
        """Places in `found` of settings that come to the recorded one."""
        now = plain(Setting(), self.grid.recording)
        return frozenset(n for n, cell in enumerate(self.found) if plain(cell.setting, self.grid.recording) == now)

    @cached_property
    def weighed(self) -> list[tuple[Setting, Mapping[str, Estimate]]]:
        """What the best is chosen from: `found`, and behind them the present unless it is one of them."""
        settings = [(cell.setting, estimates_of(cell)) for cell in self.found]
        if self.presents or self.grid.fidelity is None:
            return settings
        return [*settings, (Setting(), {n: Estimate(v, v, v, v) for n, v in self.present.items() if not math.isnan(v)})]

    @cached_property
    def choice(self) -> Choice | None:
        """The best of `weighed` under the limits."""
        return best([estimates for _, estimates in self.weighed], self.limits, self.figure)

    @cached_property
    def front(self) -> frozenset[int]:
        """Places in `weighed` that no other setting beats in hit rate, TTFT and bytes at once."""
        return frozenset(undominated([estimates for _, estimates in self.weighed]))

    def marks(self, place: int) -> str:
        """Of a place in `weighed`: "best", "front", "present"."""
        present = place in self.presents or place == len(self.found)
        on = {"best": self.choice is not None and self.choice.place == place, "front": place in self.front, "present": present}
        return " ".join(word for word, is_on in on.items() if is_on)

    @property
    def present(self) -> dict[str, float]:
        """Figures of the recorded setting: as measured where the source measured them, else as replayed."""
        assert self.grid.fidelity is not None
        return {**self.grid.fidelity.present.figures, **self.grid.recording.measured}


def estimates_of(cell: GridCell) -> Mapping[str, Estimate]:
    """By figure; none for a cell that failed."""
    return cell.forecast.estimates if cell.forecast else {}


def is_same(estimate: Estimate) -> bool:
    """Nothing changes, and that is certain."""
    return estimate.low == estimate.high == estimate.present


# ---- how well the present is replayed ----------------------------------------------------------------------------------------


def heading(report: Report) -> list[str]:
    """What was replayed, and how far off that was."""
    recording, known = report.grid.recording, report.grid.fidelity
    window = f", {report.window}" if report.window else ""
    lines = [f"replayed: {report.source}{window}: {recording.calls:,} calls of {len(recording.workflows):,} workflows{_warm(recording)}"]
    if known is None:
        return lines
    off = [
        f"{NAMES.get(name, name)} {change(known.residuals[name].error, FIGURES[name].unit)}" for name in COLUMNS if name in known.residuals
    ]
    if off:
        lines.append("residual (replayed less measured): " + ", ".join(off))
    else:
        lines.append("residual: none, since the source measured nothing; replays are compared with replays")
    return [*lines, *(f"missing: {loss}" for loss in recording.losses)]


def _warm(recording: Recording) -> str:
    """How many of the calls only warm the cache up."""
    from_s = recording.measured_from_s
    warm = sum(call.arrived < from_s for workflow in recording.workflows for call in workflow.calls) if math.isfinite(from_s) else 0
    return f", the first {warm:,} to warm the cache up" if warm else ""


# ---- what comes of it ---------------------------------------------------------------------------------------------------------


def conclusion(report: Report) -> list[str]:
    """The best setting in a sentence, and what the marks of the table mean."""
    if not report.found:
        return ["no setting is finished"]
    choice, limits = report.choice, " and ".join(limit_said(limit) for limit in report.limits)
    better = f"{'most' if FIGURES[report.figure].better > 0 else 'least'} {NAMES.get(report.figure, report.figure)}"
    if choice is None:
        lines = [f"best: no setting keeps {limits}"]
    else:
        setting, estimates = report.weighed[choice.place]
        value = shown(estimates[report.figure].value, FIGURES[report.figure].unit)
        kept = f", with {limits}" + ("" if choice.sure else " by its value alone: its error reaches beyond the limit") if limits else ""
        lines = [f"best: {setting.label}: {better}, {value}{kept}"]
    lines.append(f"front: no other setting is better in {', '.join(NAMES[n] for n in WEIGHED)} at once")
    changes = [e[n] for e in map(estimates_of, report.found) for n in CHANGES if n in e and not is_same(e[n])]
    uncertain = sum(not change.certain for change in changes)
    if uncertain:
        lines.append(f"{WITHIN} a change within its own error: {uncertain} of {len(changes)}")
    return lines


def limit_said(limit: Limit) -> str:
    """A limit as it is typed."""
    return f"{limit.figure}{'<' if limit.most else '>'}{shown(limit.value, FIGURES[limit.figure].unit).replace(' ', '')}"


# ---- for scripts -------------------------------------------------------------------------------------------------------------


def as_json(report: Report) -> dict[str, Any]:
    """Everything, in base units; what never happened is null."""
    grid, choice = report.grid, report.choice
    known, front = grid.fidelity, report.front
    return {
        "source": report.source, "window": report.window, "calls": grid.recording.calls, "workflows": len(grid.recording.workflows),
        "losses": list(grid.recording.losses),
        "present": _numbers(report.present) if known else None,
        "residuals": {name: asdict(residual) | {"error": residual.error} for name, residual in known.residuals.items()} if known else None,
        "asked": len(grid.asked), "stopped": grid.stopped, "replayed": grid.replayed, "seconds": round(grid.took_s, 3),
        "cells": [_cell(cell, place in front) for place, cell in enumerate(report.found)],
        "failed": [{"setting": cell.setting.given, "error": cell.error} for cell in report.failed],
        "best": {"place": choice.place, "sure": choice.sure, "setting": report.weighed[choice.place][0].given} if choice else None,
    }


def _cell(cell: GridCell, front: bool) -> dict[str, Any]:
    figures = {
        name: {**_numbers(asdict(estimate)), "change": estimate.change, "certain": estimate.certain}
        for name, estimate in estimates_of(cell).items()
    }
    return {"setting": cell.setting.given, "figures": figures, "front": front}


def _numbers(found: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in found.items()}
