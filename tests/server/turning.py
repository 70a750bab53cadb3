"""Knobs turned at random while a server works: every policy, gamma and k, prefetch and its budget, the order of the host tier."""

import random

from pbkv.control.client import ControlClient
from pbkv.eviction.catalog import POLICIES
from pbkv.knobs import Value


class Turner:
    """Turns some knobs at each call, every policy within as many calls as there are policies; `turned` counts the changes."""

    def __init__(self, url: str, seed: int, *, retire_idle_s: tuple[float, ...] = (1.0, 5.0, 600.0)) -> None:
        self._client, self._rng = ControlClient(url, actor="test"), random.Random(seed)
        self._retire_idle_s = retire_idle_s
        self._due: list[str] = []
        self.turned = 0

    def turn(self) -> None:
        """One accepted change of the policy and some others."""
        rng = self._rng
        self._due = self._due or rng.sample(list(POLICIES), len(POLICIES))
        changes: dict[str, Value] = {
            "policy": self._due.pop(), "gamma": round(rng.random(), 3), "k": rng.randint(1, 8),
            "prefetch": rng.choice(("off", "conservative", "conservative", "aggressive")),
            "prefetch_budget": rng.choice((0, 1 << 20, 1 << 30)), "host_order": rng.choice(("recency", "score")),
            "retire_idle_s": rng.choice(self._retire_idle_s),
        }
        wanted = rng.sample(sorted(changes), rng.randint(1, len(changes)))
        self._client.set({name: changes[name] for name in {"policy", *wanted}}, reason="turned at random")
        self.turned += 1
