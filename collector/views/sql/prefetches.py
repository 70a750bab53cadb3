"""What the prefetcher decided and what came of it."""

from collector.views.query import IN_RANGE, IN_ROLLED, Query, text

PREFETCHES = Query(
    "prefetches", "Prefetch decisions, completions and outcomes",
    {
        "result": "issued, skip_<why>, completed, used, evicted_unused or late",
        "count": "rows of that result",
        "tokens": "tokens of the nodes",
        "bytes": "KV bytes moved or to be moved",
    },
    f"""SELECT {text('prefetch', 'result')} AS result, count(*) AS count, sum(tokens)::BIGINT AS tokens, sum(bytes)::BIGINT AS bytes
        FROM raw.prefetch WHERE {IN_RANGE} GROUP BY 1 ORDER BY count DESC, result""",
    f"""SELECT {text('prefetch', 'result')} AS result, sum(rows)::BIGINT AS count, sum(tokens)::BIGINT AS tokens,
        sum(bytes)::BIGINT AS bytes
        FROM raw.roll_prefetch_{{w}} WHERE {IN_ROLLED} GROUP BY 1 ORDER BY count DESC, result""",
)
