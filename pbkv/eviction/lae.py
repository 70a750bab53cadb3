"""Lifecycle-aware eviction: the paper's ablation without a predictor."""

from pbkv.eviction.base import Key, Policy
from pbkv.record import NodeRecord


class Lae(Policy):
    """What ended workflows left behind first, then least recently used."""

    name = "lae"
    meaning = "retired first, then least recently used"

    def key(self, record: NodeRecord) -> Key:
        return (0.0 if record.retired else 1.0, record.node.last_access_time)
