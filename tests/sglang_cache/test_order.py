"""Victims of the real cache, one by one, against a full sort of what could go; and of a whole eviction, against a replay on paper."""

import random
from typing import Any

import pytest

from pbkv.eviction.catalog import POLICIES
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.moves import Player, sequence

AGENTS = ("plan", "code", "test")
PAGE = 4


def key_by_hand(policy: str, tier: str, node: Any) -> tuple[float, ...]:
    """The order of design: retired first, then (he, device only) the least score, then least recently used."""
    record, access = node.pbkv, node.last_access_time
    ended = record.touched and not record.live and not record.anonymous
    if policy == "lru":
        return (access,)
    if policy == "he" and tier == "device":
        return (0, 0, access) if ended else (1, record.score, access)
    return (0 if ended else 1, access)


#: Policies whose order is written out above; the others are held to their own keys.
BY_HAND = ("lru", "lae", "he")


class Watch:
    """Asserts at each victim that no candidate sorts before it."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.runtime = bench, bench.runtime
        self.seen = {"device": 0, "host": 0}
        self._device, self._host = self.runtime.next_device_victim, self.runtime.next_host_victim
        self.runtime.next_device_victim, self.runtime.next_host_victim = self._next_device, self._next_host

    def _check(self, tier: str, candidates: list[Any], victim: Any) -> None:
        policy = str(self.runtime.knobs["policy"])
        if victim is None:
            assert not candidates
            return
        self.seen[tier] += 1
        best = min(candidates, key=lambda n: (self._key(policy, tier, n), n.id))
        assert victim is best, f"{policy}, {tier}: {self._key(policy, tier, victim)} went before {self._key(policy, tier, best)}"

    def _key(self, policy: str, tier: str, node: Any) -> tuple[float, ...]:
        if policy in BY_HAND and (tier == "device" or self.runtime.knobs["host_order"] == "recency"):
            return key_by_hand(policy, tier, node)
        return (self.runtime.policy.key if tier == "device" else self.runtime._host_key())(node.pbkv)

    def _next_device(self) -> Any:
        taken = {r.node for r in self.runtime._walk}
        candidates = [n for n in self.bench.core.evictable_device_leaves if n not in taken]
        victim = self._device()
        self._check("device", candidates, None if victim is None else victim.node)
        return victim

    def _next_host(self) -> Any:
        candidates = list(self.bench.core.evictable_host_leaves)
        victim = self._host()
        self._check("host", candidates, None if victim is None else victim.node)
        return victim


def live_through(bench: Bench, seed: int, steps: int, *, policies: tuple[str, ...] = ()) -> None:
    """Workflows come, share prefixes, end in every way; knobs turn; some calls are nobody's."""
    rng, state, knobs = random.Random(seed), bench.runtime.state, bench.runtime.knobs
    for step in range(steps):
        roll, name, tokens = rng.random(), f"w{rng.randrange(8)}", sequence(rng, 3 * PAGE)
        if roll < 0.70:
            bench.call(name, rng.choice(AGENTS), tokens, final=rng.random() < 0.1)
        elif roll < 0.76:
            if bench.put(tokens) is not None:
                state.touch_anonymous(bench.records(tokens))
        elif roll < 0.82:
            state.close(name)
        elif roll < 0.86:
            state.tick(state.now + rng.choice((1.0, 300.0)))
        elif roll < 0.90:
            changes = {"gamma": rng.random(), "k": rng.randint(1, 8)}
            if policies:
                changes["policy"] = rng.choice(policies)
                changes["host_order"] = rng.choice(("recency", "score"))
            knobs.apply(changes, if_version=knobs.version, step=step, actor="test")
            bench.runtime.knobs_changed(set(changes))
        elif roll < 0.95:
            bench.evict(rng.randint(1, 40))
        elif bench.cache.cache_controller is not None:
            bench.cache.evict_host(rng.randint(1, 40))
        if rng.random() < 0.5:
            bench.settle()
        bench.check()


@pytest.mark.parametrize("host", [None, 1.5])
@pytest.mark.parametrize("policy", ["lae", "session_lae", "kvflow", "kvflow_all", "he", "first_use"])
def test_each_victim_is_the_least_of_all_candidates(policy: str, host: float | None) -> None:
    bench = Bench(plugin={"policy": policy}, page=PAGE, size=32 * PAGE, host=host)
    watch = Watch(bench)
    live_through(bench, 11, 500)
    assert watch.seen["device"] > 100
    assert host is None or watch.seen["host"] > 50
    bench.close()


def test_the_order_follows_a_change_of_policy_at_once() -> None:
    bench = Bench(plugin={"policy": "lru"}, page=PAGE, size=32 * PAGE, host=1.5)
    watch = Watch(bench)
    live_through(bench, 12, 600, policies=tuple(POLICIES))
    assert watch.seen["device"] > 100
    bench.close()


def replay(bench: Bench, policy: str) -> list[int]:
    """Order in which the whole tree goes when leaves alone may go: on paper, from keys alone."""
    nodes = bench.nodes()
    keys = {n.id: key_by_hand(policy, "device", n) for n in nodes}
    parents = {n.id: n.parent.id for n in nodes}
    children = {n.id: sum(c.parent is n for c in nodes) for n in nodes}
    order: list[int] = []
    while children:
        victim = min((i for i, count in children.items() if not count), key=lambda i: (keys[i], i))
        order.append(victim)
        del children[victim]
        if parents[victim] in children:
            children[parents[victim]] -= 1
    return order


@pytest.mark.parametrize("policy", ["lru", "lae", "he"])
def test_evicting_everything_is_the_replay_on_paper(policy: str) -> None:
    bench = Bench(plugin={"policy": policy}, page=PAGE, size=400 * PAGE, host=None)
    rng = random.Random(13)
    for _ in range(150):
        bench.call(f"w{rng.randrange(9)}", rng.choice(AGENTS), sequence(rng, 3 * PAGE), final=rng.random() < 0.05)
    expected = replay(bench, policy)
    victims: list[int] = []
    evict = bench.core.evict_device_leaf
    bench.core.evict_device_leaf = lambda node_id, *args: victims.append(node_id) or evict(node_id, *args)
    while bench.evict(1):
        pass
    assert victims == expected
    assert len(victims) > 40
    assert not bench.nodes()


def test_retired_first_then_the_least_expected() -> None:
    """Small enough to follow: three workflows side by side, the oldest is the most useful."""
    bench = Bench(plugin={"policy": "he", "k": 1}, page=1, size=200, host=None)
    useful, useless, ended = ([n * 1000 + i for i in range(20)] for n in (1, 2, 3))
    for _ in range(20):  # plan is followed by code, code by plan, until the loop is known
        bench.call("teacher", "plan", [9])
        bench.call("teacher", "code", [9])
    bench.runtime.state.close("teacher")
    bench.call("a", "code", useful)
    bench.call("a", "plan", [5])  # a calls code next: what code touched is worth most
    bench.call("b", "plan", useless)  # b calls code next: what plan touched is worth little
    bench.call("c", "plan", ended, final=True)
    player = Player(bench)
    bench.evict(61)
    victims = [entry[1] for entry in player.log]
    assert victims.index(tuple(ended)) < victims.index(tuple(useless)) < victims.index(tuple(useful))
