"""The settings of a grid as a table: three figures with their errors, and whether the difference to the present is more than that."""

from collections.abc import Sequence

from rich.text import Text

from console.top.format import fit
from console.top.palette import BAD, GOOD, MUTED, TEXT, WARN
from console.top.panels.table import Col, LiveTable
from pbkv.whatif.choice import Choice, undominated
from pbkv.whatif.forecast import Estimate
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.question import Found
from pbkv.whatif.units import shown
from pbkv.whatif.words import NAMES, brief, give_or_take, verdict

_NARROW = ("hit", "ttft_p95", "moved_bytes")
_WIDE = ("hit", "hit_device", "ttft_p50", "ttft_p95", "moved_bytes", "evicted_live")
#: Rows drawn; the best of the order.
MOST_ROWS = 300
#: Orders, by the key `s`.
ORDERS = ("asked", *_NARROW)


class CellTable(LiveTable):
    """`show_cells` makes it equal to the cells; the row key is the cell's place."""

    def show_cells(self, cells: Sequence[Found], choice: Choice | None, order: str, width: int) -> None:
        """`choice`: the best one, marked; `order`: of ORDERS."""
        figures = _WIDE if width >= 130 else _NARROW
        numbers = [Col(f, NAMES[f], 18 if f == "moved_bytes" else 15, right=True) for f in figures]
        self.layout_columns((Col("mark", "", 2), Col("setting", "setting", 0), *numbers), width)
        front = set(undominated([cell.estimates for cell in cells]))
        places = sorted(range(len(cells)), key=lambda n: _rank(cells[n], order))[:MOST_ROWS]
        chosen = choice.place if choice else -1
        self.show({str(n): self._row(cells[n], figures, "★" if n == chosen else "·" if n in front else "") for n in places})

    def _row(self, cell: Found, figures: Sequence[str], mark: str) -> dict[str, Text]:
        name = fit(brief(cell.setting), self.width_of("setting"))
        row = {"mark": Text(mark, f"bold {WARN}"), "setting": Text(name, TEXT if not cell.refused else MUTED)}
        if cell.refused:
            row["setting"] = Text(fit(f"{brief(cell.setting)}: {cell.refused}", self.width_of("setting")), BAD)
        return {**row, **{figure: amount(figure, cell.estimates.get(figure)) for figure in figures}}


def _rank(cell: Found, order: str) -> tuple[bool, float]:
    estimate = cell.estimates.get(order)
    return (order != "asked" and estimate is None, -FIGURES[order].better * estimate.value if estimate else 0.0)


def amount(figure: str, estimate: Estimate | None) -> Text:
    """52.1 % ±0.4 in the colour of its verdict; muted within its error."""
    if estimate is None:
        return Text("–", MUTED)
    text = Text(shown(estimate.value, FIGURES[figure].unit), {1: GOOD, -1: BAD, 0: TEXT}[verdict(figure, estimate)[1]])
    error = give_or_take(figure, estimate)
    return text.append(f" ±{error}" if error else "", MUTED)
