"""With the knob policy at lru the plugin's cache is SGLang's own, move for move: hits, victims and their order, sizes."""

from typing import Any

import pytest

from tests.sglang_cache.harness import Bench
from tests.sglang_cache.moves import Player, life

SHAPES = [
    (1, None, "write_through"), (16, None, "write_through"), (1, 1.5, "write_through"), (16, 2.0, "write_through"), (16, 1.5, "write_back"),
]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("page", "host", "policy"), SHAPES)
def test_same_life_as_the_stock_cache(page: int, host: float | None, policy: str, seed: int) -> None:
    length = 12 if page == 1 else 3 * page
    shape: dict[str, Any] = {"page": page, "host": host, "size": 8 * length, "write_policy": policy}
    stock, ours = Player(Bench(**shape)), Player(Bench(plugin={"policy": "lru"}, **shape))
    for move in life(seed, length, host=host is not None):
        stock.play(move)
        ours.play(move, ours.bench.check)
        assert ours.log == stock.log, f"they part at {move}"
    counts = {kind: sum(entry[0] == kind for entry in ours.log) for kind in ("device victim", "host victim")}
    assert counts["device victim"] > 50, "too few evictions to mean anything"
    assert host is None or counts["host victim"] > 50
    stock.bench.close()
    ours.bench.close()
