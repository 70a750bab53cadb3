"""`pbkv bench`: experiments on the embedded engine, and the benchmarks of the source tree."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from collector.token import state_dir
from console.cli import measure
from console.cli.options import Json
from console.cli.output import print_table
from pbkv.bench.cellcache import CellCache
from pbkv.bench.export import fitting_source, write_runs
from pbkv.bench.paper import Scope
from pbkv.bench.study import HEAD, QUICK_SEEDS, SEEDS, as_json, line, run_study, write
from pbkv.errors import UsageError

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Experiments and benchmarks.")
measure.add_to(app)

Quick = Annotated[bool, typer.Option("--quick", help="A part of everything, in about two minutes.")]
Out = Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Where report.html, report.md and results.json go.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, max=64, help="Processes.")]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, max=100, help=f"Workflow sets; {SEEDS}, with --quick {QUICK_SEEDS}.")]
FirstSeed = Annotated[int, typer.Option("--first-seed", min=0, max=999_999, help="Number of the first workflow set.")]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Run this experiment alone; may be repeated.")]
Trace = Annotated[list[str] | None, typer.Option(
    "--trace", metavar="NAME=FILE", help="Recorded agent calls (Parquet), played in all layouts; half of them held out; may be repeated.",
)]
Model = Annotated[list[str] | None, typer.Option(
    "--model", metavar="NAME=DIR", help="A trained predictor for a workload (hover, swe, finance) or a trace by name; may be repeated.",
)]
Cells = Annotated[Path | None, typer.Option("--cells", metavar="DIR", help="Where finished runs are kept, so that a study can go on.")]


@app.callback()
def _group() -> None:
    """Experiments and benchmarks."""


@app.command()
def paper(
    quick: Quick = False, json_: Json = False, out: Out = Path("pbkv-paper"), jobs: Jobs = 2, seeds: Seeds = None,
    first_seed: FirstSeed = 0, only: Only = None, trace: Trace = None, model: Model = None, cells: Cells = None,
) -> None:
    """The paper's experiments: policies, load, horizon, decay, predictors, noise, host tier, prefetch, offline bound, ablations."""
    scope = Scope(quick, pairs("--trace", trace or []), pairs("--model", model or []))
    count = seeds or (QUICK_SEEDS if quick else SEEDS)
    cache = CellCache(cells or state_dir() / "bench-cells")
    study = run_study(scope, range(first_seed, first_seed + count), only or [], cache, jobs)
    files = write(study, out)
    if json_:
        json.dump(as_json(study), sys.stdout, indent=1)
        print()
    else:
        print_table([*HEAD], [line(finding) for finding in study.found])
    print("written: " + ", ".join(str(file) for file in files), file=sys.stderr)


@app.command()
def runs(
    source: Annotated[str, typer.Argument(metavar="NAME|TRACE", help="hover, swe, finance, or a table of agent calls (Parquet).")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The table to write (Parquet).")] = Path("runs.parquet"),
) -> None:
    """Write the runs that `pbkv train` may learn from for `pbkv bench paper --model`: of a trace, the half that is not played."""
    calls = write_runs(fitting_source(source), out)
    print(f"written: {out}, {calls} calls", file=sys.stderr)


def pairs(option: str, given: list[str]) -> tuple[tuple[str, str], ...]:
    """["name=path"] as pairs of a name and a path that exists. Raises UsageError."""
    made: list[tuple[str, str]] = []
    for text in given:
        name, sep, path = text.partition("=")
        if not sep or not name or not path:
            raise UsageError(f"{option} {text!r}: expected NAME=PATH")
        if not Path(path).exists():
            raise UsageError(f"{option} {text!r}: {path!r} does not exist; name a file or folder that does")
        made.append((name, path))
    return tuple(made)
