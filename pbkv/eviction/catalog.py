"""The policies an operator can choose by name, and why a victim went."""

from collections.abc import Callable

from pbkv.eviction.base import Policy
from pbkv.eviction.first_use import FirstUse
from pbkv.eviction.he import He
from pbkv.eviction.kvflow import KvFlow, KvFlowAll
from pbkv.eviction.lae import Lae
from pbkv.eviction.lru import Lru
from pbkv.eviction.session_lae import SessionLae
from pbkv.reads import Reads
from pbkv.record import NodeRecord

POLICIES: dict[str, type[Policy]] = {p.name: p for p in (Lru, Lae, SessionLae, KvFlow, KvFlowAll, He, FirstUse)}


def make_policy(name: str, reads: Reads, rekeyed: Callable[[NodeRecord], None]) -> Policy:
    """The policy of that name. `rekeyed` is told of records whose place in the order became earlier."""
    kind = POLICIES[name]
    if issubclass(kind, KvFlow):
        return kind(rekeyed)
    return kind(reads) if issubclass(kind, FirstUse) else kind()


def decision_of(policy: Policy, victim: NodeRecord, runner_up: NodeRecord | None) -> str:
    """Why `victim` went: "retired", "scored" (its score was the least), or "tie" (recency among equals)."""
    if victim.retired and policy.name not in ("lru", "kvflow"):
        return "retired"
    if not policy.by_score or (runner_up is not None and policy.level(runner_up) == policy.level(victim)):
        return "tie"
    return "scored"
