"""`pbkv train`: a predictor from recorded runs."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.cli.options import TokenFile
from pbkv.errors import PbkvError, UsageError

if TYPE_CHECKING:
    from pbkv.predictor.dataset import Trace
    from pbkv.predictor.train import Trainer

KINDS = ("graphsage", "rgcn", "markov")
#: Shares of runs for training, validation (early stopping, calibration) and test (figures in the config).
SHARES = (0.75, 0.125, 0.125)
MIN_RUNS = 8
#: Longest recording that can be asked for, seconds: a year.
MAX_SECONDS = 366 * 86_400.0
#: As in `pbkv.predictor.backoff`, which is imported when it is needed.
MAX_ORDER = 8
Traces = Annotated[list[Path] | None, typer.Argument(
    metavar="TRACES...", help="Tables of agent calls (.parquet), recordings (.jsonl), conversations or sessions (.json, folders).",
)]
Out = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the predictor; with --record, the file of the rows.")]
Record = Annotated[str | None, typer.Option(
    "--record", metavar="URL", help="Instead of training: write training rows of the calls of this server to a file, without any text.",
)]
Seconds = Annotated[float | None, typer.Option("--seconds", metavar="S", help="With --record: how long; without it until interrupted.")]
MaxBytes = Annotated[str, typer.Option("--max-bytes", metavar="SIZE", help="With --record: the oldest rows leave a larger file.")]
Kind = Annotated[str, typer.Option("--predictor", metavar="|".join(KINDS), help="Which one.")]
Order = Annotated[int, typer.Option(metavar="N", help="Agents that markov looks back.")]
Epochs = Annotated[int, typer.Option(metavar="N", help="Most passes over the data; fewer when the validation loss stops falling.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Decides the split of the runs and all randomness of training.")]
Threads = Annotated[int, typer.Option(metavar="N", help="CPU threads; only with 1 are two trainings equal to the bit.")]


def train(
    output: Out, traces: Traces = None, predictor: Kind = "graphsage", order: Order = 3, epochs: Epochs = 14, seed: Seed = 0,
    threads: Threads = 1, record: Record = None, seconds: Seconds = None, max_bytes: MaxBytes = "256MiB", token_file: TokenFile = None,
) -> None:
    """Learn from TRACES which agents follow, and write a predictor to DIR. Killed, it goes on after its last epoch when run again."""
    if record is not None:
        _record(record, traces, output, seconds, max_bytes, token_file)
        return
    if not traces:
        raise UsageError("TRACES: nothing to learn from was named; name files or folders of runs, or record some with --record URL")
    if predictor not in KINDS:
        raise UsageError(f"--predictor {predictor!r}: expected one of {', '.join(KINDS)}")
    for name, value, most in (("epochs", epochs, 1000), ("threads", threads, 256), ("order", order, MAX_ORDER)):
        if not 1 <= value <= most:
            raise UsageError(f"--{name} {value}: expected a whole number from 1 to {most}")
    if not 0 <= seed < 1 << 32:
        raise UsageError(f"--seed {seed}: expected a whole number from 0 to {(1 << 32) - 1}")
    parts, about = _split(traces, seed)
    if predictor == "markov":
        _markov(parts, order, output, about)
    else:
        _network(parts, {"backbone": predictor, "epochs": epochs, "seed": seed}, threads, output, about)
    _test(output, parts[2])


def _record(url: str, traces: list[Path] | None, output: Path, seconds: float | None, max_bytes: str, token_file: str | None) -> None:
    from collector.options import parse_size
    from console.cli.record import record
    from pbkv.control.client import ControlClient, read_token

    if traces:
        raise UsageError(f"--record {url}: TRACES are for training; record first, then train on the file")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--record {url!r}: expected http://HOST:PORT, for example http://127.0.0.1:30000")
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise UsageError(f"--seconds {seconds:g}: expected a number above 0, at most {MAX_SECONDS:g}")
    client = ControlClient(url, token=read_token(token_file))
    record(client, output, seconds=seconds, max_bytes=parse_size(max_bytes, "--max-bytes"))


def _split(paths: list[Path], seed: int) -> "tuple[list[list[Trace]], dict[str, Any]]":
    """The three sets of runs, and what the config says of them."""
    from pbkv.predictor.dataset import digest, load_traces, roster, signal_kind, split

    traces = load_traces(paths)
    if len(traces) < MIN_RUNS:
        raise UsageError(f"traces hold {len(traces)} runs: expected at least {MIN_RUNS}, so that some can be kept for validation and test")
    parts = split(traces, SHARES, seed)
    sizes = ", ".join(f"{len(part)} for {use}" for part, use in zip(parts, ("training", "validation", "test"), strict=True))
    _say(f"{len(traces)} runs, {sum(len(t.agents) for t in traces)} calls, {len(roster(traces))} agents; runs: {sizes}")
    about: dict[str, Any] = {"data": digest(traces), "runs": [len(part) for part in parts], "seed": seed}
    return parts, about | ({"signal": kind} if (kind := signal_kind(traces)) else {})


def _markov(parts: "list[list[Trace]]", order: int, output: Path, about: dict[str, Any]) -> None:
    from pbkv.predictor import backoff

    backoff.fit([*parts[0], *parts[1]], order).save(output, about)


def _network(parts: "list[list[Trace]]", recipe: dict[str, Any], threads: int, output: Path, about: dict[str, Any]) -> None:
    from pbkv.predictor import resume, store
    from pbkv.predictor.train import Recipe, Trainer, use_threads

    use_threads(threads)
    trainer = Trainer(parts[0], parts[1], Recipe(**recipe))
    if found := resume.resume(output, trainer):
        _say(found)
    while not trainer.done:
        started = time.monotonic()
        loss = trainer.run_epoch()
        resume.keep(output, trainer)
        _say(_epoch(trainer, loss, time.monotonic() - started))
    arrays, config = trainer.finish()
    store.save(output, arrays, config | about)
    resume.drop(output)


def _epoch(trainer: "Trainer", loss: float, seconds: float) -> str:
    best = " (best)" if trainer.best_epoch == trainer.epoch else ""
    return f"epoch {trainer.epoch} of at most {trainer.recipe.epochs}: validation loss {loss:.4f}{best}, {seconds:.1f} s"


def _test(output: Path, traces: "list[Trace]") -> None:
    """Figures on runs that neither training nor validation saw, into the config and to stderr."""
    import json

    from pbkv.predictor import store
    from pbkv.predictor.evaluate import evaluate
    from pbkv.predictor.load import load_predictor
    from pbkv.predictor.names import Roster

    names: list[str] = []
    scores = evaluate(load_predictor(output, Roster(names)), traces, names)
    config: dict[str, Any] = store.read_config(output) | {"test": {"runs": len(traces), **scores}}
    try:
        store.write_text(output / store.CONFIG, json.dumps(config, indent=1) + "\n")
    except OSError as error:
        raise PbkvError(f"predictor {str(output)!r} cannot be written: {error.strerror or error}") from None
    for moment, steps in scores.items():
        _say(f"test, {moment}: accuracy at steps 1, 2, 3 " + ", ".join(f"{step['accuracy']:.3f}" for step in steps[:3]))
    _say(f"wrote {output}")


def _say(text: str) -> None:
    print(f"train: {text}", file=sys.stderr, flush=True)
