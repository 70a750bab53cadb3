"""One embedded server for the tests of a file: it starts in a second."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.embedded import EmbeddedServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """Small tiers, so that a few calls fill them; quick, so that tests do not wait for a model of a GPU."""
    folder: Path = tmp_path_factory.mktemp("server")
    sizes = ("--device-tokens", "3072", "--host-tokens", "12288", "--context-length", "2048", "--speed", "20")
    with EmbeddedServer(folder, *sizes) as running:
        yield running
