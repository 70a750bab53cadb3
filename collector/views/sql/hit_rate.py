"""Prompt tokens served from each tier, and the time to the first token."""

from collector.rollup import unbin_sql
from collector.views.query import BUCKET, IN_RANGE, IN_ROLLED, Query, code, histogram, percentile

_DONE = code("call", "status", "done")

HIT_RATE = Query(
    "hit_rate", "Share of prompt tokens found in each tier, and time to first token, of the calls that ended in the range",
    {
        "calls": "calls that ended",
        "prompt_tokens": "their prompt tokens",
        "device": "share of prompt tokens found on the device; NULL = no prompt tokens",
        "host": "share of prompt tokens loaded back from the host",
        "ttft_p50_ms": "median time to first token of calls that were not aborted, ms",
        "ttft_p95_ms": "95th percentile of the same, ms",
        "unattributed_calls": "calls that named no workflow and agent",
    },
    f"""SELECT count(*) AS calls,
        coalesce(sum(prompt_tokens), 0)::BIGINT AS prompt_tokens,
        sum(device_hit_tokens) / nullif(sum(prompt_tokens), 0) AS device,
        sum(host_hit_tokens) / nullif(sum(prompt_tokens), 0) AS host,
        (quantile_cont(ttft_ms, 0.5) FILTER (status = {_DONE}))::DOUBLE AS ttft_p50_ms,
        (quantile_cont(ttft_ms, 0.95) FILTER (status = {_DONE}))::DOUBLE AS ttft_p95_ms,
        count(*) FILTER (attributed = 0) AS unattributed_calls
        FROM raw.call WHERE {IN_RANGE}""",
    f"""WITH r AS (SELECT * FROM raw.roll_call_{{w}} WHERE {IN_ROLLED}),
        h AS ({histogram('r', 'ttft_ms_bin', 'calls', f'status = {_DONE}')})
        SELECT coalesce(sum(calls), 0)::BIGINT AS calls, coalesce(sum(prompt_tokens), 0)::BIGINT AS prompt_tokens,
        sum(device_hit_tokens) / nullif(sum(prompt_tokens), 0) AS device, sum(host_hit_tokens) / nullif(sum(prompt_tokens), 0) AS host,
        {percentile('h', 0.5, unbin_sql('bin'))} AS ttft_p50_ms, {percentile('h', 0.95, unbin_sql('bin'))} AS ttft_p95_ms,
        coalesce(sum(calls) FILTER (attributed = 0), 0)::BIGINT AS unattributed_calls FROM r""",
)

HIT_SERIES = Query(
    "hit_series", "Share of prompt tokens found in each tier over time",
    {
        "t": "start of the time bucket, UTC",
        "calls": "calls that ended in it",
        "device": "share of prompt tokens found on the device",
        "host": "share of prompt tokens loaded back from the host",
    },
    f"""SELECT {BUCKET} AS t, count(*) AS calls,
        sum(device_hit_tokens) / sum(prompt_tokens) AS device, sum(host_hit_tokens) / sum(prompt_tokens) AS host
        FROM raw.call WHERE {IN_RANGE} GROUP BY 1 HAVING sum(prompt_tokens) > 0 ORDER BY 1""",
    f"""SELECT {BUCKET} AS t, sum(calls)::BIGINT AS calls,
        sum(device_hit_tokens) / sum(prompt_tokens) AS device, sum(host_hit_tokens) / sum(prompt_tokens) AS host
        FROM raw.roll_call_{{w}} WHERE {IN_ROLLED} GROUP BY 1 HAVING sum(prompt_tokens) > 0 ORDER BY 1""",
)
