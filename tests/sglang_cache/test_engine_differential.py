"""The embedded engine's tree is SGLang's cache, move for move: hits, victims and their order, sizes. That defines "correct" for it."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from pbkv.identity import CallIdentity
from tests.engine.invariants import check_tree
from tests.engine.parts import make_manager, make_tree
from tests.engine.player import TreePlayer
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.moves import Move, Player, life

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


class Caller(Player):
    """Also makes whole calls of workflows."""

    def call(self, workflow: str, agent: str, tokens: list[int], final: bool) -> Any:
        end = self.put(tokens)
        if end is None:
            return None
        state = self.bench.runtime.state
        made, agent_id = state.begin_call(CallIdentity(workflow, agent, final))
        state.touch(made, agent_id, self.bench.records(tokens[: len(tokens) // self.bench.page * self.bench.page]))
        state.end_call(made, final=final)
        return end

    def close(self, workflow: str) -> bool:
        return bool(self.bench.runtime.state.close(workflow))


def working_life(seed: int, length: int, *, host: bool) -> Iterator[Move]:
    """A life whose insertions are calls of workflows: some end with a last call, some by being closed."""
    rng = random.Random(seed + 100)
    for move in life(seed, length, host=host, moves=500):
        if move[0] != "put":
            yield move
            continue
        workflow = f"w{rng.randrange(6)}"
        yield "call", workflow, rng.choice("abc"), move[1], rng.random() < 0.15
        if rng.random() < 0.05:
            yield "close", workflow


@pytest.mark.parametrize("knobs", [
    {"policy": "lru"}, {"policy": "lae"}, {"policy": "he"}, {"policy": "he", "host_order": "score"}, {"policy": "first_use"},
    {"policy": "kvflow_all"},
], ids=str)
@pytest.mark.parametrize(("page", "host", "policy"), [
    (1, None, "write_through"), (16, 1.5, "write_through"), (64, 1.5, "write_through"), (16, 1.5, "write_back"),
])
def test_same_life_as_the_plugin(page: int, host: float | None, policy: str, knobs: dict[str, Any]) -> None:
    length = 12 if page == 1 else 3 * page
    size = 8 * length
    real = Caller(Bench(plugin=knobs, page=page, host=host, size=size, write_policy=policy))
    host_tokens = 0 if host is None else int(real.bench.cache.cache_controller.mem_pool_host.size)
    manager = make_manager(knobs)
    ours = TreePlayer(make_tree(size, host_tokens, page, policy, manager))
    for move in working_life(7, length, host=host is not None):
        real.play(move)
        ours.play(move, lambda: check_tree(ours.tree))
        assert ours.log == real.log, f"they part at {move}"
    assert sum(entry[0] == "device victim" for entry in ours.log) > 50, "too few evictions to mean anything"
    assert manager.counts["retired_workflows"] > 20
    real.bench.close()
