"""A hand-made database and its overview."""

from collections.abc import Callable
from pathlib import Path

import pytest

from collector.client import open as open_source
from collector.views.models import Overview
from collector.views.overview import load_overview
from tests.support.hand import Hand

Fill = Callable[[Hand], None]


def overview_of(path: Path, fill: Fill, window_s: float = 60.0, server: str | None = None) -> Overview:
    """Write a database with `fill` and read its overview through the product's own reader."""
    with Hand(path) as hand:
        fill(hand)
    with open_source(str(path)) as reader:
        return load_overview(reader, window_s, server)


@pytest.fixture
def overview(tmp_path: Path) -> Callable[..., Overview]:
    def load(fill: Fill, window_s: float = 60.0, server: str | None = None) -> Overview:
        return overview_of(tmp_path / "hand.duckdb", fill, window_s, server)

    return load
