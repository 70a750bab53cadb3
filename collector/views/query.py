"""A stored question: SQL over schema `raw`, bounded by the scope it is asked for.

Every question reads one stream and one time range, given as parameters, so that it touches a bounded part of a store of any
size: $src (stream), $t0 and $t1 (microseconds, UTC; the range is t0 < t <= t1), $past (start of the range in which state that
still holds at t1 is looked up) and $bucket (width of a point of a series, microseconds).
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
IN_PAST = "src = $src AND t > make_timestamp($past) AND t <= make_timestamp($t1)"
#: Start of the time bucket of a row. Buckets start at multiples of their width, so a point stays where it is while time goes on.
BUCKET = "make_timestamp(epoch_us(t) - epoch_us(t) % $bucket)"


@dataclass(frozen=True)
class Query:
    """One question. `columns` says what each column of the answer means, in order."""

    name: str
    title: str
    columns: Mapping[str, str]
    sql: str

    @cached_property
    def params(self) -> frozenset[str]:
        """Names of the scope parameters it uses."""
        return frozenset(re.findall(r"\$(\w+)", self.sql))

    def run(self, reader: Reader, params: Mapping[str, int]) -> pa.Table:
        """The answer as an Arrow table. Raises like Reader.sql."""
        return reader.sql(self.sql, {k: params[k] for k in self.params})


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
