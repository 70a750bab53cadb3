"""Hierarchical eviction: the paper's order, literally."""

from pbkv.eviction.base import Key, Policy
from pbkv.record import NodeRecord


class He(Policy):
    """Retired first, then the least reuse score (Eq. 2), ties least recently used."""

    name = "he"
    meaning = "retired first, then the least reuse score of the paper (Eq. 2)"
    by_score = True
    discounts = True

    def key(self, record: NodeRecord) -> Key:
        # As `record.retired` says it, without the call: this is asked for at every change of a score.
        if record.live or record.anonymous or not record.touched:
            return (1.0, record.score, record.node.last_access_time)
        return (0.0, 0, record.node.last_access_time)
