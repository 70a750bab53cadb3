"""`pbkv eval`: how good a predictor is on recorded runs."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from console.cli.options import Json
from console.cli.output import print_table
from pbkv.errors import UsageError

Predictor = Annotated[str, typer.Argument(
    metavar="DIR", help="Folder made by 'pbkv train', or 'online' for the Markov chain that learns as it goes.",
)]
Traces = Annotated[list[Path], typer.Argument(metavar="TRACES...", help="Runs it should not have been trained on.")]
Mixed = Annotated[bool, typer.Option("--mixed", help="Mix an online Markov chain in, as a live cache does.")]
_COLUMNS = ("moment", "step", "n", "accuracy", "nll", "brier", "ece")


def eval_(directory: Predictor, traces: Traces, mixed: Mixed = False, as_json: Json = False) -> None:
    """Accuracy, NLL, Brier score and calibration error of the predictor in DIR on TRACES, per moment and step; END is a class."""
    from pbkv.predictor.dataset import digest, load_traces
    from pbkv.predictor.evaluate import evaluate

    names: list[str] = []
    predictor, about = _predictor(directory, names, mixed)
    runs = load_traces(traces)
    data = digest(runs)
    scores = evaluate(predictor, runs, names, learn=mixed or directory == "online", progress=_progress(len(runs)))
    if about.get("data") == data:
        print("eval: most of these runs were used in training; the config's test figures are of runs that were not", file=sys.stderr)
    if as_json:
        print(json.dumps({"predictor": about.get("kind", "online"), "runs": len(runs), "data": data, **scores}, indent=2))
        return
    numbered = [(moment, k, step) for moment, steps in scores.items() for k, step in enumerate(steps, 1)]
    table = [[moment, str(k), *(_cell(step[column]) for column in _COLUMNS[2:])] for moment, k, step in numbered]
    print_table(list(_COLUMNS), table, frozenset(range(1, len(_COLUMNS))))


def _predictor(directory: str, names: list[str], mixed: bool) -> "tuple[Any, dict[str, Any]]":
    from pbkv.predictor import store
    from pbkv.predictor.load import load_predictor
    from pbkv.predictor.markov import OnlineMarkov
    from pbkv.predictor.mixed import Mixed as MixedPredictor
    from pbkv.predictor.names import Roster

    if directory == "online":
        if mixed:
            raise UsageError("--mixed: 'online' has nothing to mix with; give the folder of a trained predictor")
        return OnlineMarkov(), {}
    trained = load_predictor(directory, Roster(names))
    return (MixedPredictor(trained) if mixed else trained), store.read_config(Path(directory))


def _progress(runs: int) -> Any:
    """Every tenth of the runs, on a terminal alone."""
    def say(done: int) -> None:
        if sys.stderr.isatty() and done % max(1, runs // 10) == 0:
            print(f"eval: {done} of {runs} runs", file=sys.stderr, flush=True)

    return say


def _cell(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}"
