"""One plugin server and one stock server for all tests of this folder: each start costs 20 to 30 s."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import Server, running_server


@pytest.fixture(scope="session")
def plugin(tiny_model: Path) -> Iterator[Server]:
    with running_server(tiny_model, config={"server": "under-test"}, max_total_tokens=3072, hicache_ratio=4) as server:
        yield server


@pytest.fixture(scope="session")
def stock(tiny_model: Path) -> Iterator[Server]:
    with running_server(tiny_model, max_total_tokens=3072, hicache_ratio=4) as server:
        yield server
