"""SGLang's session radix cache (`--enable-session-radix-cache`), the upstream form of lifecycle-aware eviction."""

from pbkv.eviction.base import Key, Policy
from pbkv.record import NodeRecord


class SessionLae(Policy):
    """Nodes no live session refers to first (unattributed ones among them), then few sessions before many, then least recently used."""

    name = "session_lae"
    meaning = "as SGLang's session cache: unreferenced first, then few live workflows first, then least recently used"

    def key(self, record: NodeRecord) -> Key:
        return (float(len(record.live)), record.node.last_access_time)
