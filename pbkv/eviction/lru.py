"""Least recently used first: SGLang's default."""

from pbkv.eviction.base import Key, Policy
from pbkv.record import NodeRecord


class Lru(Policy):
    """Recency alone."""

    name = "lru"
    meaning = "least recently used first"

    def key(self, record: NodeRecord) -> Key:
        return (record.node.last_access_time,)
