"""Cells that run in a fraction of a second."""

from dataclasses import replace
from typing import Any

from pbkv.bench.cell import Cell, Source
from pbkv.workloads.layouts import LayoutName


def small(layout: LayoutName = "private", **changes: Any) -> Cell:
    """A few HoVer-like workflows in a pool that holds about half of what they keep alive."""
    source = Source("hover", layout, (("delay_scale", 8.0),))
    cell = Cell(source, workflows=12, warm=6, concurrency=12, stagger_s=10.0, device_tokens=100_032, max_running=8)
    return replace(cell, **changes)
