"""A table whose rows are kept and whose cells are updated: refilling one costs 143 ms at 500 rows, updating changed cells a fraction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text
from textual.widgets import DataTable

from console.top.guard import Guarded

_ORDER = "_order"


@dataclass(frozen=True)
class Col:
    """A column: header, width in cells (0 = what is left), alignment."""

    key: str
    title: str
    width: int
    right: bool = False


class LiveTable(Guarded, DataTable[Text | int]):
    """`show` makes the table equal to the given rows, in the given order, touching only what changed."""

    def __init__(self, *, id: str, header: bool = True) -> None:
        super().__init__(id=id, show_header=header, cursor_type="row", cursor_foreground_priority="renderable", cell_padding=0)
        self._cols: Sequence[Col] = ()
        self._shown: dict[str, tuple[str, ...]] = {}
        self._wanted: list[str] = []

    def layout_columns(self, cols: Sequence[Col], width: int) -> None:
        """Columns for a table `width` cells wide; the rows come back with the next `show`."""
        gaps = len(cols) - 1
        left = max(8, width - gaps - sum(c.width for c in cols))
        fitted = [Col(c.key, c.title, c.width or left, c.right) for c in cols]
        if fitted == list(self._cols):
            return
        self._cols = fitted
        self._shown, self._wanted = {}, []
        self.clear(columns=True)
        self.add_column("", key=_ORDER, width=0)
        for i, c in enumerate(fitted):
            pad = 1 if i < gaps else 0
            title = Text(c.title.rjust(c.width) if c.right else c.title, "bold")
            self.add_column(title, key=c.key, width=c.width + pad)

    def width_of(self, key: str) -> int:
        """Cells of a column."""
        return next((c.width for c in self._cols if c.key == key), 0)

    @property
    def keys(self) -> list[str]:
        """Keys of the columns now laid out."""
        return [c.key for c in self._cols]

    def show(self, rows: Mapping[str, Mapping[str, Text]]) -> None:
        """`rows`: row key -> column key -> cell, in the order of the screen."""
        if not self._cols:
            return
        for gone in [key for key in self._shown if key not in rows]:
            self.remove_row(gone)
            del self._shown[gone]
        for key, cells in rows.items():
            self._put(key, cells)
        if self._wanted != list(rows):
            self._reorder(list(rows))

    def _put(self, key: str, cells: Mapping[str, Text]) -> None:
        marks = tuple(f"{cells[c.key].markup}" for c in self._cols)
        before = self._shown.get(key)
        if before is None:
            self.add_row(0, *(self._cell(c, cells[c.key]) for c in self._cols), key=key)
        else:
            for c, old, new in zip(self._cols, before, marks, strict=True):
                if old != new:
                    self.update_cell(key, c.key, self._cell(c, cells[c.key]))
        self._shown[key] = marks

    def _cell(self, col: Col, text: Text) -> Text:
        cell = text.copy()
        cell.truncate(col.width)
        if col.right:
            cell.align("right", col.width)
        return cell

    def _reorder(self, order: list[str]) -> None:
        chosen = self.row_key_at_cursor()
        self._wanted = order
        for place, key in enumerate(order):
            self.update_cell(key, _ORDER, place)
        self.sort(_ORDER)
        if not self.has_focus:
            # Nobody has chosen a row: the top of the order stays in sight.
            self.move_cursor(row=0)
            self.scroll_home(animate=False)
        elif chosen in self._shown:
            # The cursor stays on its row, not on its line.
            self.move_cursor(row=self.get_row_index(chosen))

    def row_key_at_cursor(self) -> str | None:
        """Key of the row under the cursor."""
        if not self.is_valid_row_index(self.cursor_row):
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value
