"""The embedded engine's tree is SGLang's cache, move for move: hits, victims and their order, sizes. That defines "correct" for it."""

from typing import Any

import pytest

from tests.engine.invariants import check_tree
from tests.engine.parts import make_tree
from tests.engine.player import TreePlayer
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.moves import Player, life

SHAPES = [
    (page, host, policy)
    for page in (1, 16, 64)
    for host, policy in ((None, "write_through"), (1.5, "write_through"), (1.5, "write_through_selective"), (1.5, "write_back"))
]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("page", "host", "policy"), SHAPES)
def test_same_life_as_the_stock_cache(page: int, host: float | None, policy: str, seed: int) -> None:
    length = 12 if page == 1 else 3 * page
    size = 8 * length
    shape: dict[str, Any] = {"page": page, "host": host, "size": size, "write_policy": policy}
    stock = Player(Bench(**shape))
    host_tokens = 0 if host is None else int(stock.bench.cache.cache_controller.mem_pool_host.size)
    ours = TreePlayer(make_tree(size, host_tokens, page, policy))
    for move in life(seed, length, host=host is not None):
        stock.play(move)
        ours.play(move, lambda: check_tree(ours.tree))
        assert ours.log == stock.log, f"they part at {move}"
    counts = {kind: sum(entry[0] == kind for entry in ours.log) for kind in ("device victim", "host victim")}
    assert counts["device victim"] > 50, "too few evictions to mean anything"
    assert host is None or counts["host victim"] > 10
    stock.bench.close()
