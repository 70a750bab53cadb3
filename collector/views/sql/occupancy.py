"""Tokens by state in both tiers: now, and one sample per time bucket."""

from collector.views.query import BUCKET, IN_PAST, IN_RANGE, IN_ROLLED, Query
from pbkv.events.schema import BY_NAME

_FIELDS = tuple(f.name for f in BY_NAME["occupancy"].fields)
_MEANING = {f.name: f.meaning for f in BY_NAME["occupancy"].fields}

OCCUPANCY = Query(
    "occupancy", "Tokens by state in both tiers, newest sample",
    {"t": "time of the sample, UTC", **_MEANING},
    f"SELECT t, {', '.join(_FIELDS)} FROM raw.occupancy WHERE {IN_PAST} ORDER BY seq DESC, idx DESC LIMIT 1",
)

OCCUPANCY_SERIES = Query(
    "occupancy_series", "Tokens by state in both tiers over time, last sample of each bucket",
    {"t": "time of the sample, UTC", **_MEANING},
    f"""SELECT t, {', '.join(_FIELDS)} FROM raw.occupancy WHERE {IN_RANGE}
        QUALIFY row_number() OVER (PARTITION BY {BUCKET} ORDER BY seq DESC, idx DESC) = 1 ORDER BY t""",
    f"""SELECT at_t AS t, {', '.join(_FIELDS)} FROM raw.roll_occupancy_{{w}} WHERE {IN_ROLLED}
        QUALIFY row_number() OVER (PARTITION BY {BUCKET} ORDER BY at_seq DESC) = 1 ORDER BY at_t""",
)
