"""Random lives of a cache: moves that any cache can make, drawn from token sequences that share prefixes."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.sglang_cache.harness import Bench

Move = tuple[Any, ...]


def tokens_of(choices: tuple[int, ...], length: int, cut: int) -> list[int]:
    """A sequence made of one segment per choice: the same choices give the same prefix. `cut` tokens are missing at its end."""
    tokens: list[int] = []
    for depth in range(len(choices)):
        start = hash((choices[: depth + 1], 5)) % 100_000 + 1
        tokens += range(start, start + length)
    return tokens[: max(1, len(tokens) - cut)]


def sequence(rng: random.Random, length: int) -> list[int]:
    """One to four segments of `length` tokens, three branches per level, often cut somewhere in the last segment."""
    choices = tuple(rng.randrange(3) for _ in range(rng.randint(1, 4)))
    return tokens_of(choices, length, rng.choice((0, 0, rng.randrange(length))))


def life(seed: int, length: int, *, host: bool, moves: int = 400) -> Iterator[Move]:
    """A life: mostly insertions, some of everything else."""
    rng = random.Random(seed)
    kinds = ["put"] * 6 + ["match", "evict", "lock", "unlock"]
    if host:
        kinds += ["load_back", "load_back", "settle", "settle", "settle", "evict_host"]
    for _ in range(moves):
        kind = rng.choice(kinds)
        if kind in ("put", "match", "lock", "load_back"):
            yield kind, sequence(rng, length)
        elif kind in ("evict", "evict_host"):
            yield kind, rng.randint(1, 3 * length)
        elif kind == "unlock":
            yield kind, rng.randrange(10)
        else:
            yield (kind,)


class Player:
    """Makes moves on one cache and writes down what came of each, in words that do not depend on node ids."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.log: list[Any] = []
        self._locks: list[tuple[int, Any]] = []
        self._watch_victims()

    def _watch_victims(self) -> None:
        core = self.bench.core
        device, host = core.evict_device_leaf, core._evict_host_leaf

        def evict_device_leaf(node_id: int, *args: Any) -> Any:
            self.log.append(("device victim", self.path(core.node_by_id(node_id))))
            return device(node_id, *args)

        def evict_host_leaf(node: Any, *args: Any, **kwargs: Any) -> Any:
            self.log.append(("host victim", self.path(node)))
            return host(node, *args, **kwargs)

        core.evict_device_leaf, core._evict_host_leaf = evict_device_leaf, evict_host_leaf

    def path(self, node: Any) -> tuple[int, ...]:
        """All tokens from the root to the node's end."""
        tokens: list[int] = []
        while node is not self.bench.core.root_node:
            tokens[:0] = node.key.raw_token_ids().tolist()
            node = node.parent
        return tuple(tokens)

    def play(self, move: Move, after: Callable[[], None] = lambda: None) -> None:
        """One move, then the sizes it left."""
        result = getattr(self, move[0])(*move[1:])
        cache = self.bench.cache
        self.log.append((move[0], result, self.bench.allocator.available_size(), cache.evictable_size(), cache.protected_size()))
        after()

    def put(self, tokens: list[int]) -> Any:
        end = self.bench.put(tokens)
        return None if end is None else len(self.path(self.bench.node(end)))

    def match(self, tokens: list[int]) -> Any:
        found = self.bench.match(tokens)
        return found.device_prefix_len, found.host_hit_length

    def evict(self, count: int) -> int:
        return self.bench.evict(count)

    def lock(self, tokens: list[int]) -> int:
        found = self.bench.match(tokens)
        if found.device_prefix_len and len(self._locks) < 3:
            self._locks.append((found.last_device_node, self.bench.cache.inc_lock_ref(found.last_device_node).to_dec_params()))
        return len(self._locks)

    def unlock(self, number: int) -> int:
        if self._locks:
            self.bench.cache.dec_lock_ref(*self._locks.pop(number % len(self._locks)))
        return len(self._locks)

    def load_back(self, tokens: list[int]) -> bool:
        found = self.bench.match(tokens)
        return bool(found.host_hit_length) and bool(self.bench.cache.load_back(found.best_match_node))

    def settle(self) -> int:
        self.bench.settle()
        return self.bench.host_free()

    def evict_host(self, count: int) -> int:
        return int(self.bench.cache.evict_host(count))
