"""The best setting of a result, in words."""

from typing import NamedTuple

from pbkv.errors import UsageError
from pbkv.whatif.choice import WEIGHED, Choice, best, parse_figure, parse_limits
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.results import Result
from pbkv.whatif.units import shown
from pbkv.whatif.words import NAMES, brief


class Winner(NamedTuple):
    """`asked`: of what the setting is the best; `name` "" = none is; `facts`: its figures, or why there is none."""

    asked: str
    name: str
    facts: str


def choice_of(result: Result) -> Choice | None:
    """The best setting under the constraint of the result."""
    try:
        limits, figure = parse_limits(result.under), parse_figure(result.best or WEIGHED[0])
    except UsageError:  # of a file from another release
        return None
    return best([cell.estimates for cell in result.cells], limits, figure)


def winner(result: Result) -> Winner:
    """best hit rate under ttft_p95<800ms: he gamma 0.8 (hit rate 52.1 %, ...)."""
    asked = f"best {NAMES.get(result.best, result.best)}" + (f" under {result.under}" if result.under else "")
    choice = choice_of(result)
    if choice is None:
        return Winner(asked, "", "no setting keeps that")
    cell = result.cells[choice.place]
    facts = ", ".join(f"{NAMES[f]} {shown(cell.estimates[f].value, FIGURES[f].unit)}" for f in WEIGHED if f in cell.estimates)
    unsure = "" if choice.sure or not result.under else "; the limit lies within its error"
    return Winner(asked, brief(cell.setting), facts + unsure)
