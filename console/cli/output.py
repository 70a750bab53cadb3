"""Results on stdout: an aligned table, JSON, CSV or Parquet."""

import json
import re
import sys
from typing import TYPE_CHECKING, Any, cast

from pbkv.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS = re.compile(r"u?int|float|double|decimal|halffloat")
FORMATS = ("table", "json", "csv", "parquet")


def print_table(header: list[str], rows: list[list[str]], right: frozenset[int] = frozenset()) -> None:
    """Aligned columns under a header line; columns in `right` are right-aligned. Cells stay on one line."""
    cells = [header, *([" ".join(cell.split()) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for row in cells:
        parts = (cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        print("  ".join(parts).rstrip())


def write_result(table: "pa.Table", format_: str) -> None:
    """Print an Arrow table in one of FORMATS. Raises UsageError for Parquet on a terminal."""
    {"table": _table, "json": _json, "csv": _csv, "parquet": _parquet}[format_](table)
    sys.stdout.flush()


def refuse_binary_on_terminal(format_: str) -> None:
    """Raises UsageError for Parquet on a terminal; called before the query runs."""
    if format_ == "parquet" and sys.stdout.isatty():
        raise UsageError("--format parquet: stdout is a terminal; redirect it, for example > result.parquet")


def _table(table: "pa.Table") -> None:
    right = frozenset(i for i, field in enumerate(table.schema) if _NUMBERS.match(str(field.type)))
    print_table(table.column_names, [[_cell(v) for v in row] for row in _rows(table)], right)


def _rows(table: "pa.Table") -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _json(table: "pa.Table") -> None:
    # Column by column: duplicate column names would be lost in a dict, so they get the position appended.
    names = [n if table.column_names.index(n) == i else f"{n}_{i}" for i, n in enumerate(table.column_names)]
    rows = [dict(zip(names, row, strict=True)) for row in _rows(table)]
    print(json.dumps(rows, default=str, indent=2))


def _csv(table: "pa.Table") -> None:
    import pyarrow.csv as csv

    cast(Any, csv).write_csv(table, sys.stdout.buffer)


def _parquet(table: "pa.Table") -> None:
    import pyarrow.parquet as parquet

    cast(Any, parquet).write_table(table, sys.stdout.buffer)
