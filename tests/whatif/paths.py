"""Generated requests as paths of blocks, a plain cache of such paths, and what other simulators made of them."""

import random
from collections.abc import Sequence

Path = tuple[int, ...]


def paths(seed: int, calls: int, *, fan: int = 3, depth: int = 12) -> list[Path]:
    """Paths in a random tree, some continued again and again as conversations are; an id always stands behind the same path."""
    rng = random.Random(seed)
    ids: dict[tuple[int, int], int] = {}
    open_ends: list[Path] = []
    made: list[Path] = []
    for _ in range(calls):
        path = list(rng.choice(open_ends)) if open_ends and rng.random() < 0.6 else []
        for _ in range(rng.randint(1, depth)):
            branch = rng.randrange(fan) if len(path) < 3 else rng.randrange(1 << 30)
            path.append(ids.setdefault((path[-1] if path else -1, branch), len(ids)))
        made.append(tuple(path))
        open_ends.append(tuple(path))
        if len(open_ends) > 12:
            open_ends.pop(rng.randrange(len(open_ends)))
    return made


#: Hits in blocks by pool size of `paths(11, 400)`: all calls, by libcachesim 0.3.5 (LRU, one request per block in order of the path); the
#: second half, by kvcache-simulator 0.1.3 (lru of its C++ core, every block one token). No path is longer than the smallest pool.
SEED, CALLS = 11, 400
SIZES = (100, 150, 200, 300, 400, 600, 900)
LIBCACHESIM = (3287, 4649, 4983, 5095, 5112, 5140, 5151)
KVCACHE_SIMULATOR = (2488, 3005, 3050, 3093, 3104, 3120, 3127)


def leaf_lru(requests: Sequence[Path], size: int, measured_from: int = 0) -> int:
    """Hits of a cache of `size` blocks, block by block: what is missing of a request is put in from the top, each time in place of the
    leaf whose last request is oldest and not this one. Written to be read, not to be fast.
    """
    parent: dict[int, int] = {}
    cached: dict[int, int] = {}  # block -> its last request
    hits = 0
    for now, path in enumerate(requests):
        found = next((n for n, block in enumerate(path) if block not in cached), len(path))
        hits += found * (now >= measured_from)
        cached |= dict.fromkeys(path[:found], now)
        for n in range(found, len(path)):
            if len(cached) >= size:
                inner = {parent[block] for block in cached}
                leaves = [block for block in cached if block not in inner and cached[block] < now]
                if not leaves:
                    break  # the request alone fills the cache
                del cached[min(leaves, key=cached.__getitem__)]
            parent[path[n]] = path[n - 1] if n else -1
            cached[path[n]] = now
        for n, block in enumerate(path):
            parent[block] = path[n - 1] if n else -1
    return hits
