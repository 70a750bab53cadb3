"""Victims by why they were chosen and where they went."""

from collector.views.query import IN_RANGE, IN_ROLLED, Query, text

_KEYS = ", ".join(f"{text('eviction', field)} AS {field}" for field in ("decision", "from_tier", "to_tier"))

EVICTIONS = Query(
    "evictions", "Evicted nodes by decision and by tier",
    {
        "decision": "why the victim was chosen: retired, scored, tie",
        "from_tier": "tier that lost the node",
        "to_tier": "tier that still holds it; none = dropped",
        "nodes": "victims",
        "tokens": "tokens they held",
    },
    f"""SELECT {_KEYS}, count(*) AS nodes, sum(tokens)::BIGINT AS tokens
        FROM raw.eviction WHERE {IN_RANGE} GROUP BY ALL ORDER BY tokens DESC, decision, from_tier, to_tier""",
    f"""SELECT {_KEYS}, sum(nodes)::BIGINT AS nodes, sum(tokens)::BIGINT AS tokens
        FROM raw.roll_eviction_{{w}} WHERE {IN_ROLLED} GROUP BY ALL ORDER BY tokens DESC, decision, from_tier, to_tier""",
)
