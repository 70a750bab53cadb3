"""Tables of agent calls: Parquet with workflow, step (from 0), agent, output_tokens and, if there is one, text_hash (128 int8).

The rows of a workflow follow each other by step.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pbkv.errors import UsageError
from pbkv.workloads.adapters.reading import MAX_CALLS, Row, read_bytes
from pbkv.workloads.adapters.runs import RecordedRuns, Run, SizeRule
from pbkv.workloads.layouts import LayoutName

_COLUMNS = ("workflow", "step", "agent", "output_tokens")
_TEXT = "text_hash"
#: Entries of a text signal.
SIGNAL = 128


def load_agent_calls(
    path: str | Path, *, layout: LayoutName = "private", rule: SizeRule | None = None, max_calls: int = 0
) -> RecordedRuns:
    """The runs of a table. Raises UsageError that names file, row and field of the first fault."""
    file = Path(path)
    runs = tuple(_runs(file))
    if not runs:
        raise UsageError(f"trace file {str(file)!r} holds no call")
    return RecordedRuns(file.stem, runs, layout, rule or SizeRule(), max_calls)


def _runs(file: Path) -> Iterator[Run]:
    """Consecutive rows with the same workflow are one run."""
    rows: list[Row] = []
    seen: set[str] = set()
    for n, entry in enumerate(_entries(file)):
        row = Row(f"trace file {str(file)!r}: row {n}", entry)
        name, step = row.text("workflow"), row.whole("step", high=MAX_CALLS)
        if rows and name != rows[0].text("workflow"):
            yield _run(rows)
            rows = []
        if not rows and name in seen:
            raise row.bad("workflow", "the rows of a workflow to follow each other")
        if step != len(rows):
            raise row.bad("step", f"{len(rows)}")
        seen.add(name)
        rows.append(row)
    if rows:
        yield _run(rows)


def _run(rows: list[Row]) -> Run:
    texts = tuple(_signal(row) for row in rows) if rows[0].get(_TEXT) is not None else None
    return Run(
        rows[0].text("workflow"), tuple(row.text("agent") for row in rows), tuple(row.whole("output_tokens") for row in rows), texts
    )


def _signal(row: Row) -> bytes:
    values = row.ids(_TEXT, SIGNAL)
    if any(not -128 <= value <= 127 for value in values):
        raise row.bad(_TEXT, "numbers from -128 to 127")
    return bytes(value & 0xFF for value in values)


def _entries(file: Path) -> Iterator[object]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    reader = cast(Any, pq)
    raw = cast(Any, pa).BufferReader(read_bytes(file))
    try:
        table = reader.ParquetFile(raw)
        names = table.schema_arrow.names
        if missing := [c for c in _COLUMNS if c not in names]:
            raise UsageError(f"trace file {str(file)!r}: column {missing[0]!r} is missing; expected {', '.join(_COLUMNS)}")
        for batch in table.iter_batches(batch_size=4096, columns=[*_COLUMNS, *([_TEXT] if _TEXT in names else [])]):
            yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"trace file {str(file)!r} cannot be read as Parquet: {' '.join(str(error).split())[:100]}") from None
