"""`pbkv bench NAME` for the benchmarks that come with the source tree: each runs in a process of its own, as `python -m` would."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import console
from console.cli.options import Json
from pbkv.errors import UsageError

#: Name on the command line -> module below tests/benchmarks and what it measures.
MEASURED = {
    "ingest": ("bench_ingest", "Events per second into DuckDB, beside a bare insert."),
    "writer": ("bench_writer", "What an event costs the scheduler thread."),
    "evict": ("bench_evict", "Choosing a victim in SGLang's real cache, ours beside SGLang's two cores."),
    "stock": ("bench_stock", "Hit rates and costs beside stock SGLang, on recorded calls."),
    "scores": ("bench_scores", "A victim with all that keeps the order, by policy."),
    "predict": ("bench_predict", "Time and accuracy of predictions."),
    "scheduler": ("bench_scheduler_predict", "What a trained predictor costs SGLang's scheduler."),
    "engine": ("bench_engine", "Calls per second of the embedded engine."),
    "replay": ("bench_replay", "Blocks per second of a replay, beside other simulators; growth and memory."),
    "grid": ("bench_grid", "Grids of settings over an hour's log on two processes."),
    "store": ("bench_store", "A large store: size, opening, the screens' queries."),
    "ui": ("bench_screen", "From an event to the screen."),
}
Quick = Annotated[bool, typer.Option("--quick", help="A short run.")]


def add_to(app: typer.Typer) -> None:
    """Make each of them a command of `app`."""
    for name, (module, help_) in MEASURED.items():
        app.command(name, help=help_)(_command(module))


def _command(module: str) -> Callable[[bool, bool], int]:
    def run(quick: Quick = False, json_: Json = False) -> int:
        return measure(module, [*(["--quick"] if quick else []), *(["--json"] if json_ else [])])

    return run


def measure(module: str, options: list[str], root: Path = Path(console.__file__).parents[1]) -> int:
    """Run a benchmark of the source tree at `root`; returns its exit status. Raises UsageError where there is no source tree."""
    if not (root / "tests" / "benchmarks" / f"{module}.py").is_file():
        raise UsageError("the benchmarks come with the source tree, which is not here; run this in a checkout after `make install`")
    return subprocess.run([sys.executable, "-m", f"tests.benchmarks.{module}", *options], cwd=root, check=False).returncode
