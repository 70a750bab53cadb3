"""A stored question: SQL over schema `raw`, bounded by the scope it is asked for.

Every question reads one stream and one time range, given as parameters, so that it touches a bounded part of a store of any
size: $src (stream), $t0 and $t1 (microseconds, UTC; the range is t0 < t <= t1), $past and $seq0 (start of the range in which state that
still holds at t1 is looked up, as a time and as a message) and $bucket (width of a point of a series, microseconds).

Over a long range, or one with very many events, a question is answered from the rollups (collector.rollup): to the second or minute at both
ends, percentiles within 5 %, and on a live store without the last two seconds (per second) or the last minute (per minute).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from collector.reader import Reader
from pbkv.events.schema import BY_NAME, Namespace

#: WHERE clause of a bounded scan.
IN_RANGE = "src = $src AND t > make_timestamp($t0) AND t <= make_timestamp($t1)"
#: The same for state: what happened long before t0 may still hold at t1.
IN_PAST = "src = $src AND t > make_timestamp($past) AND t <= make_timestamp($t1) AND seq > $seq0"
#: The same over rollups, whose rows stand for the second or minute that begins at t.
IN_ROLLED = "src = $src AND t >= make_timestamp($t0) AND t <= make_timestamp($t1)"
#: Ranges above the first are answered from the rollups per second, above the second from those per minute, microseconds.
_SECONDS_US, _MINUTES_US = 600 * 10**6, 6 * 3600 * 10**6
#: Events in a range above which it is answered from the rollups too, unless it is shorter than the second, microseconds.
_MANY, _SHORT_US = 500_000, 10 * 10**6
#: Start of the time bucket of a row. Buckets start at multiples of their width, so a point stays where it is while time goes on.
BUCKET = "make_timestamp(epoch_us(t) - epoch_us(t) % $bucket)"


@dataclass(frozen=True)
class Query:
    """One question. `columns` says what each column of the answer means, in order. `rolled` is the same over rollups, {w} being the suffix
    of their tables; "" = the events are read over any range."""

    name: str
    title: str
    columns: Mapping[str, str]
    sql: str
    rolled: str = ""

    @cached_property
    def params(self) -> frozenset[str]:
        """Names of the scope parameters it uses."""
        return _params(self.sql) | _params(self.rolled)

    def run(self, reader: Reader, params: Mapping[str, int]) -> pa.Table:
        """The answer as an Arrow table. Raises like Reader.sql."""
        sql = self.sql_for(params["t1"] - params["t0"], params.get("events", 0))
        return reader.sql(sql, {k: params[k] for k in _params(sql)})

    def sql_for(self, range_us: int, events: int = 0) -> str:
        """The statement for a range of that many microseconds in which that many events are."""
        long = range_us > _SECONDS_US or (events > _MANY and range_us >= _SHORT_US)
        if not self.rolled or not long:
            return self.sql
        return self.rolled.replace("{w}", "1s" if range_us <= _MINUTES_US else "1m")


def _params(sql: str) -> frozenset[str]:
    return frozenset(re.findall(r"\$(\w+)", sql))


def percentile(bins: str, share: float, unbin: str) -> str:
    """SQL of a percentile from `bins`, a table with `bin`, `upto` (how many up to and including the bin) and `total`."""
    return f"(SELECT {unbin} FROM (SELECT min(bin) AS bin FROM {bins} WHERE upto >= {share} * total))::DOUBLE"


def histogram(rows: str, column: str, count: str, condition: str = "true") -> str:
    """SQL of the `bins` that `percentile` reads."""
    grouped = f"SELECT {column} AS bin, sum({count}) AS n FROM {rows} WHERE {condition} GROUP BY 1"
    return f"SELECT bin, sum(n) OVER (ORDER BY bin) AS upto, sum(n) OVER () AS total FROM ({grouped})"


def text(kind: str, field: str, column: str | None = None) -> str:
    """SQL for the name of an enumerated code of `kind`.`field`."""
    names = ", ".join(f"'{v}'" for v in BY_NAME[kind].field(field).values)
    return f"([{names}])[{column or field} + 1]"


def code(kind: str, field: str, value: str) -> int:
    """The number that stands for a name of `kind`.`field`."""
    return BY_NAME[kind].field(field).code(value)


def names_of(namespace: Namespace) -> str:
    """SQL of one row with `names`, a map from id to text. Joined crosswise it is planned once, unlike a join per id column."""
    return f"SELECT map(list(id), list(text)) AS names FROM raw.name WHERE src = $src AND namespace = {int(namespace)}"


def named(column: str, found: str | None = None) -> str:
    """SQL for the text behind an id (looked up in `names`, or given as `found`): NULL for 0, '#id' when the name itself was lost."""
    return f"CASE WHEN {column} = 0 THEN NULL ELSE coalesce({found or f'names[{column}]'}, '#' || {column}) END"
