"""The settings of a grid as rows of text: for the terminal and the page."""

import math
from collections.abc import Sequence

from pbkv.whatif.axes import AXES
from pbkv.whatif.forecast import Estimate
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.predictors import default_name
from pbkv.whatif.report import CHANGES, COLUMNS, WITHIN, Report, estimates_of, is_same
from pbkv.whatif.setting import KNOB_FIELDS, Setting
from pbkv.whatif.units import change, count, shown, size
from pbkv.whatif.words import NAMES


def fidelity_rows(report: Report) -> tuple[list[str], list[list[str]]]:
    """Header and rows: every figure as measured, as replayed, and the difference."""
    known = report.grid.fidelity
    rows: list[list[str]] = []
    for name, value in known.present.figures.items() if known else ():
        unit, residual = FIGURES[name].unit, known.residuals.get(name) if known else None
        if not math.isnan(value):
            measured, error = (shown(residual.measured, unit), change(residual.error, unit)) if residual else ("-", "-")
            rows.append([name, measured, shown(value, unit), error, FIGURES[name].meaning])
    return ["figure", "measured", "replayed", "residual", "meaning"], rows


def axes_of(settings: Sequence[Setting]) -> list[str]:
    """Fields that some setting gives, in the order of the axes."""
    return [name for name in AXES if any(name in setting.given for setting in settings)]


def said(name: str, value: object) -> str:
    """A setting's value for people; "any" for one that makes no difference."""
    if value is None:
        return "any"
    if isinstance(value, float):
        return f"{value:g}"
    return size(float(str(value))) if name == "prefetch_budget" else count(float(str(value))) if name.endswith("_tokens") else str(value)


def recorded_value(report: Report, name: str) -> object:
    """Of a field, in the recording."""
    recording = report.grid.recording
    if name in KNOB_FIELDS:
        return recording.knobs[name]
    if name == "predictor":
        return default_name(recording)
    return recording.concurrency if name == "concurrency" else getattr(recording.engine, name)


def difference(name: str, estimate: Estimate) -> str:
    """Change against the present with its interval: "+3.1 (+2.8 to +3.4)", behind a mark when it is within its own error; "=": none."""
    unit = FIGURES[name].unit
    if is_same(estimate):
        return "="
    text = change(estimate.change, unit)
    if estimate.low < estimate.high:
        text += f" ({change(estimate.low - estimate.present, unit)} to {change(estimate.high - estimate.present, unit)})"
    return text if estimate.certain else WITHIN + text


def happening(report: Report, figures: Sequence[str]) -> list[str]:
    """Those of `figures` that are not nothing throughout."""
    cells = [estimates_of(cell) for cell in report.found]
    return [n for n in figures if any(n in cell and (cell[n].value or cell[n].present) for cell in cells)]


def table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the present, unless it is one of the settings, then those. Marks: "best" under the limits, "front" = beaten by none,
    "present".
    """
    axes = axes_of([cell.setting for cell in report.found])
    columns, changes = happening(report, COLUMNS), happening(report, CHANGES)
    header = [*(AXES[n].option for n in axes), *(NAMES[n] for n in columns), *(f"{NAMES[n]} change" for n in changes), ""]
    rows = [_row(report, place, axes, columns, changes) for place in range(len(report.found))]
    return header, rows if report.presents else [_now(report, axes, columns, changes), *rows]


def _now(report: Report, axes: Sequence[str], columns: Sequence[str], changes: Sequence[str]) -> list[str]:
    figures = [shown(report.present[n], FIGURES[n].unit) for n in columns]
    return [*(_recorded(report, n) for n in axes), *figures, *("" for _ in changes), report.marks(len(report.found))]


def _row(report: Report, place: int, axes: Sequence[str], columns: Sequence[str], changes: Sequence[str]) -> list[str]:
    setting, found = report.found[place].setting, estimates_of(report.found[place])
    return [
        *(said(n, setting.given.get(n)) for n in axes), *(shown(found[n].value, FIGURES[n].unit) if n in found else "-" for n in columns),
        *(difference(n, found[n]) if n in found else "-" for n in changes), report.marks(place),
    ]


def _recorded(report: Report, name: str) -> str:
    value = recorded_value(report, name)
    return "as recorded" if value is None else said(name, value)
