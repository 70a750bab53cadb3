"""Runs for `pbkv train`: those that predictors may be fitted on, and none that an experiment plays."""

from pathlib import Path
from typing import Any, cast

from pbkv.bench.cell import Source
from pbkv.bench.source import GENERATORS, fit_runs
from pbkv.errors import UsageError
from pbkv.workloads.adapters.runs import Run


def fitting_source(name: str) -> Source:
    """The generator of that name, or the trace at that path, half held out. Raises UsageError for neither."""
    if name in GENERATORS:
        return Source(name)
    if not Path(name).exists():
        raise UsageError(f"{name!r}: expected one of {', '.join(GENERATORS)} or the path of a table of agent calls")
    return Source(Path(name).stem, trace=name, held_out=True)


def write_runs(source: Source, file: Path) -> int:
    """A table of agent calls (Parquet) of the runs to fit on; returns how many calls. Raises UsageError when it cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [row for run in fit_runs(source) for row in _rows(run)]
    try:
        cast(Any, pq).write_table(cast(Any, pa).Table.from_pylist(rows), file)
    except OSError as error:
        raise UsageError(f"file {str(file)!r} cannot be written ({error.strerror}); name another with -o") from None
    return len(rows)


def _rows(run: Run) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for step, (agent, tokens) in enumerate(zip(run.agents, run.outputs, strict=True)):
        row: dict[str, object] = {"workflow": run.name, "step": step, "agent": agent, "output_tokens": tokens}
        if run.texts is not None:
            row["text_hash"] = [byte - 256 if byte > 127 else byte for byte in run.texts[step]]
        rows.append(row)
    return rows
