"""Idle windows of the host-device link: what prefetching could use, and what was moved in them."""

from collector.rollup import unbin_sql
from collector.views.query import IN_RANGE, IN_ROLLED, Query, histogram, percentile

WINDOWS = Query(
    "windows", "Idle windows of the host-device link",
    {
        "count": "windows",
        "total_ms": "their length together, ms",
        "p50_ms": "median length, ms",
        "capacity_bytes": "bytes the link could have moved in them",
        "h2d_bytes": "bytes moved host to device in them",
        "d2h_bytes": "bytes moved device to host in them",
    },
    f"""SELECT count(*) AS count, coalesce(sum(length_us), 0) / 1000 AS total_ms,
        (quantile_cont(length_us, 0.5) / 1000)::DOUBLE AS p50_ms, coalesce(sum(capacity_bytes), 0)::BIGINT AS capacity_bytes,
        coalesce(sum(h2d_bytes), 0)::BIGINT AS h2d_bytes, coalesce(sum(d2h_bytes), 0)::BIGINT AS d2h_bytes
        FROM raw.pcie_window WHERE {IN_RANGE}""",
    f"""WITH r AS (SELECT * FROM raw.roll_window_{{w}} WHERE {IN_ROLLED}), h AS ({histogram('r', 'length_us_bin', 'windows')})
        SELECT coalesce(sum(windows), 0)::BIGINT AS count, coalesce(sum(length_us), 0) / 1000 AS total_ms,
        {percentile('h', 0.5, unbin_sql('bin'))} / 1000 AS p50_ms, coalesce(sum(capacity_bytes), 0)::BIGINT AS capacity_bytes,
        coalesce(sum(h2d_bytes), 0)::BIGINT AS h2d_bytes, coalesce(sum(d2h_bytes), 0)::BIGINT AS d2h_bytes FROM r""",
)
