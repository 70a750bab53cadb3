"""What is seen of a result: table, curve, map, or the list of results that are kept."""

from collections.abc import Callable, Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Static

from console.top.palette import MUTED, TEXT, WARN
from console.top.whatif import heat
from console.top.whatif.cells import ORDERS, CellTable
from console.top.whatif.curve import Curve, legend
from console.top.whatif.kept import KeptTable
from pbkv.whatif.choice import WEIGHED, Choice
from pbkv.whatif.lines import lines, maps, numeric_axes
from pbkv.whatif.results import Result
from pbkv.whatif.setting import Setting
from pbkv.whatif.winner import choice_of, winner
from pbkv.whatif.words import NAMES

VIEWS = ("table", "curve", "map", "kept")
#: Figures that curve and map can show, by the key `f`.
SHOWN = (*WEIGHED, "hit_device", "hit_host", "ttft_p50", "evicted_live", "demand_bytes")


class Pane(Vertical, can_focus=True):
    """One view at a time."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.result: Result | None = None
        self.kept: Sequence[tuple[str, Result]] = ()
        self.at, self.order, self.figure = "table", ORDERS[0], SHOWN[0]
        self._axis = self._slice = 0

    def compose(self) -> ComposeResult:
        yield Static(id="grid-caption")
        yield CellTable(id="grid-table")
        yield Curve()
        yield Static(id="grid-map")
        yield KeptTable(id="grid-kept")

    def on_mount(self) -> None:
        self.view("table", focus=False)

    def on_resize(self) -> None:
        self._draw()

    def show(self, result: Result) -> None:
        """Look at this one from now on."""
        self.result = result
        self._draw()

    # What is chosen

    @property
    def choice(self) -> Choice | None:
        """The best setting under the constraint of the result."""
        return choice_of(self.result) if self.result is not None else None

    @property
    def chosen(self) -> Setting | None:
        """The setting under the cursor of the table; in another view the best one."""
        if self.result is None or not self.result.cells:
            return None
        key = self.query_one(CellTable).row_key_at_cursor() if self.at == "table" else None
        choice = self.choice
        place = int(key) if key is not None else choice.place if choice else None
        return self.result.cells[place].setting if place is not None and place < len(self.result.cells) else None

    def best_line(self) -> Text:
        """The best setting in words."""
        if self.result is None:
            return Text()
        best = winner(self.result)
        if not best.name:
            return Text(f"{best.asked}: {best.facts}", WARN)
        return Text.assemble((f"{best.asked}: ", MUTED), (f"★ {best.name}", f"bold {WARN}"), (f" ({best.facts})", TEXT))

    # Views

    def view(self, name: str, *, focus: bool = True) -> None:
        """Go to a view of VIEWS."""
        self.at = name
        for view, part in self._parts().items():
            part.display = view == name
        if focus:
            self.focus_view()
        self._draw()

    def focus_view(self) -> None:
        """The keys go to the view that is seen."""
        part = self._parts()[self.at]
        self.screen.set_focus(part if part.can_focus else self)

    def next_figure(self) -> None:
        self.figure = SHOWN[(SHOWN.index(self.figure) + 1) % len(SHOWN)]
        self._draw()

    def next_axis(self) -> None:
        self._axis += 1
        self._draw()

    def next_slice(self) -> None:
        self._slice += 1
        self._draw()

    def next_order(self) -> None:
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        self._draw()
        self.query_one(CellTable).move_cursor(row=0)

    def _parts(self) -> dict[str, Widget]:
        return {
            "table": self.query_one(CellTable), "curve": self.query_one(Curve), "map": self.query_one("#grid-map", Static),
            "kept": self.query_one(KeptTable),
        }

    def _draw(self) -> None:
        width = self.content_size.width
        if not self.is_mounted or width < 40:
            return
        drawing: dict[str, Callable[[int], Text]] = {"table": self._table, "curve": self._curve, "map": self._map, "kept": self._kept}
        caption = drawing[self.at](width)
        caption.truncate(width)
        self.query_one("#grid-caption", Static).update(caption)

    def _table(self, width: int) -> Text:
        cells = self.result.cells if self.result else ()
        self.query_one(CellTable).show_cells(cells, self.choice, self.order, width - 2)
        by = f"by {NAMES[self.order]}" if self.order in NAMES else "as asked"
        return Text.assemble((f"Settings {by}", f"bold {TEXT}"), ("   ★ best  · nothing beats it  ± nine times in ten", MUTED))

    def _curve(self, width: int) -> Text:
        axes = numeric_axes(self.result.cells) if self.result else []
        if not axes:
            self.query_one(Curve).draw([], "", self.figure)
            return Text("no curve: give an axis with numbers several values, for example device-tokens x0.5,x1,x2", MUTED)
        assert self.result is not None
        axis = axes[self._axis % len(axes)]
        found = lines(self.result.cells, axis, self.figure)
        self.query_one(Curve).draw(found, axis, self.figure)
        head = Text.assemble((f"{NAMES[self.figure]} over {axis}   ", f"bold {TEXT}"))
        return head.append_text(legend(found, width - head.cell_len))

    def _map(self, width: int) -> Text:
        axes = numeric_axes(self.result.cells) if self.result else []
        board = self.query_one("#grid-map", Static)
        if len(axes) < 2:
            board.update("")
            return Text("no map: give two axes with numbers several values, for example gamma 0.5:1:0.1 and k 1,2,3,4", MUTED)
        assert self.result is not None
        pairs = _pairs(axes)
        row, column = pairs[self._axis % len(pairs)]
        slices = maps(self.result.cells, row, column, self.figure)
        names = list(slices)
        if not names:
            board.update("")
            return Text(f"no setting has both {row} and {column}", MUTED)
        name = names[self._slice % len(names)]
        board.update(heat.draw(slices[name], row, column, self.figure, width, board.size.height or 12))
        more = f"   {name}" + (f" ({self._slice % len(names) + 1} of {len(names)}, n next)" if len(names) > 1 else "")
        return Text.assemble((f"{NAMES[self.figure]} over {row} and {column}", f"bold {TEXT}"), (more, MUTED))

    def _kept(self, width: int) -> Text:
        self.query_one(KeptTable).show_results(self.kept, width - 2)
        hint = "   enter opens one" if self.kept else "   none yet: every grid is kept"
        return Text.assemble(("Kept results", f"bold {TEXT}"), (hint, MUTED))


def _pairs(axes: Sequence[str]) -> list[tuple[str, str]]:
    """(row, column) in the order of the key `x`; k by gamma goes first."""
    pairs = [(a, b) for n, b in enumerate(axes) for a in axes[n + 1 :]]
    return sorted(pairs, key=lambda pair: pair != ("k", "gamma"))
