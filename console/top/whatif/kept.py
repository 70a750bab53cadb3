"""Grids that were run before, here or on the web page: the id is the end of the page's permalink."""

from collections.abc import Sequence

from rich.text import Text

from console.top.format import fit
from console.top.palette import ACTIVE, MUTED, TEXT
from console.top.panels.table import Col, LiveTable
from pbkv.whatif.results import Result

_NARROW = (Col("id", "id", 13), Col("at", "run (UTC)", 17), Col("cells", "settings", 9, right=True), Col("axes", "  axes", 0))
_WIDE = (*_NARROW, Col("source", "source", 32))


class KeptTable(LiveTable):
    """The row key is the result's id."""

    def show_results(self, results: Sequence[tuple[str, Result]], width: int) -> None:
        """Newest first."""
        self.layout_columns(_WIDE if width >= 110 else _NARROW, width)
        self.show({id_: self._row(id_, result) for id_, result in results})

    def _row(self, id_: str, result: Result) -> dict[str, Text]:
        axes = " ".join(f"{name}={text}" for name, text in result.axes.items())
        many = f"{len(result.cells)}/{result.asked}" if result.stopped else str(result.asked)
        return {
            "id": Text(id_, ACTIVE), "at": Text(result.made_at[:16].replace("T", " "), TEXT), "cells": Text(many, TEXT),
            "axes": Text("  " + fit(axes, max(self.width_of("axes") - 2, 3)), TEXT),
            "source": Text(fit(result.source, self.width_of("source")), MUTED),
        }
