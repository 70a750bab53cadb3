"""Eviction orders as sortable keys: the least key goes first. Device and host tier have an order each."""

from collections.abc import Callable

from pbkv.eviction.queue import Key
from pbkv.record import NodeRecord

KeyOf = Callable[[NodeRecord], Key]


def lru(record: NodeRecord) -> Key:
    """Least recently used first: SGLang's default."""
    return (record.node.last_access_time,)


def lae(record: NodeRecord) -> Key:
    """What ended workflows left behind first, then least recently used (the paper's lifecycle-aware ablation)."""
    return (0.0 if record.retired else 1.0, record.node.last_access_time)


def he(record: NodeRecord) -> Key:
    """Retired first, then the least reuse score (Eq. 2), ties least recently used."""
    if record.retired:
        return (0.0, 0, record.node.last_access_time)
    return (1.0, record.score, record.node.last_access_time)


#: Order of the device tier by value of the knob `policy`.
DEVICE: dict[str, KeyOf] = {"lru": lru, "lae": lae, "he": he}
#: Order of the host tier: never steered by score (retired first, then LRU), see the paper's replication notes in docs.
HOST: dict[str, KeyOf] = {"lru": lru, "lae": lae, "he": lae}


def decision_of(policy: str, victim: NodeRecord, runner_up: NodeRecord | None) -> str:
    """Why `victim` went: "retired", "scored" (its score was the least), or "tie" (recency among equals)."""
    if policy == "lru":
        return "tie"
    if victim.retired:
        return "retired"
    if policy == "lae" or (runner_up is not None and not runner_up.retired and runner_up.score == victim.score):
        return "tie"
    return "scored"
