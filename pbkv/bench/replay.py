"""Replay of a recorded order of calls, one at a time and without time, for the exact offline bound.

The order is that in which an engine with LRU, the cell's load and pool admits the calls. Belady's rule on leaves: evict the one whose next
read in that order is furthest. It is blind to sizes, so a bound for policies that are too.
"""

from bisect import bisect_right
from dataclasses import replace
from functools import lru_cache
from typing import cast

from pbkv.bench.cell import Cell, Result
from pbkv.bench.future import NodePlaces, Places
from pbkv.bench.run import make_engine, make_player
from pbkv.engine.node import Node
from pbkv.engine.requests import EngineRequest
from pbkv.eviction.base import Key, Policy
from pbkv.record import NodeRecord

Order = tuple[tuple[EngineRequest, bool], ...]


class Belady(Policy):
    """Furthest next read first; never read again before all."""

    name = "belady"
    meaning = "for experiments: furthest next read in a recorded order first"

    def __init__(self, order: Order) -> None:
        places = Places()
        self._nodes = NodePlaces(places)
        self._uses: dict[int, list[int]] = {}
        self.at = 0  # position of the call that runs
        for position, (request, _) in enumerate(order):
            for place in places.add(request.pages):
                self._uses.setdefault(place, []).append(position)

    def key(self, record: NodeRecord) -> Key:
        # Without a read in between the next read stays the same, so a key changes only when the node is accessed.
        uses = self._uses.get(self._nodes.start(cast(Node, record.node)), ())
        n = bisect_right(uses, self.at)
        return (1.0, -uses[n], record.node.last_access_time) if n < len(uses) else (0.0, 0.0, record.node.last_access_time)


def run_replay(cell: Cell) -> Result:
    """Hit rate of the measured calls of the order under the cell's policy."""
    order = recorded_order(replace(cell, policy="lru", replay=False, parts=(), predictor="", noise=0.0, host_tokens=0, prefetch="off"))
    engine = make_engine(replace(cell, max_running=1, host_tokens=0, prefetch="off", timing="linear"))
    belady = Belady(order) if cell.policy == "belady" else None
    if belady is not None:
        engine.manager.use(belady)
    hits = tokens = 0
    for position, (request, measured) in enumerate(order):
        if belady is not None:
            belady.at = position
        engine.submit(request)
        (ended,) = engine.advance()
        hits += ended.device_hit * measured
        tokens += request.prompt_tokens * measured
    return {"hit": 100 * hits / tokens, "calls": sum(measured for _, measured in order)}


@lru_cache(maxsize=1)
def recorded_order(cell: Cell) -> Order:
    """Requests in order of admission, and whether they belong to the measured workflows."""
    player = make_player(cell)
    player.log = []
    player.run()
    return tuple((request, measured) for _, request, measured in sorted(player.log, key=lambda entry: (entry[0], entry[1].id)))
