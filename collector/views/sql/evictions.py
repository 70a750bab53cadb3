"""Victims by why they were chosen and where they went."""

from collector.views.query import IN_RANGE, Query, text

EVICTIONS = Query(
    "evictions", "Evicted nodes by decision and by tier",
    {
        "decision": "why the victim was chosen: retired, scored, tie",
        "from_tier": "tier that lost the node",
        "to_tier": "tier that still holds it; none = dropped",
        "nodes": "victims",
        "tokens": "tokens they held",
    },
    f"""SELECT {text('eviction', 'decision')} AS decision, {text('eviction', 'from_tier')} AS from_tier,
        {text('eviction', 'to_tier')} AS to_tier, count(*) AS nodes, sum(tokens)::BIGINT AS tokens
        FROM raw.eviction WHERE {IN_RANGE} GROUP BY ALL ORDER BY tokens DESC, decision, from_tier, to_tier""",
)
