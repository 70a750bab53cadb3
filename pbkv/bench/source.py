"""The workflows of a cell, what predictors may be fitted on, and how large the working set is."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from random import Random

from pbkv.bench.cell import Source
from pbkv.errors import UsageError
from pbkv.workloads.adapters.detect import load_workload
from pbkv.workloads.adapters.runs import RecordedRuns, Run
from pbkv.workloads.finance_like import FinanceLike
from pbkv.workloads.generator import Generator
from pbkv.workloads.hover_like import HoverLike
from pbkv.workloads.swe_like import SweLike
from pbkv.workloads.tokens import TokenWorkflow, TokenWorkload

GENERATORS: Mapping[str, type[Generator]] = {"hover": HoverLike, "swe": SweLike, "finance": FinanceLike}
#: Seed and number of the workflows that predictors are fitted on; experiments use seeds from 0.
FIT_SEED, FIT_RUNS = 1_000_003, 1000
#: Workflows that the size of the working set is taken from.
_SIZED = 60


def workload(source: Source) -> TokenWorkload:
    """The source as a workload; of a held-out trace, the half that nothing is fitted on. Raises UsageError for an unknown name."""
    if source.trace:
        runs = _trace(source)
        return runs.only(_half(runs, fit=False)) if source.held_out else runs
    return generator(source)


def generator(source: Source) -> Generator:
    """The generator of that name with the source's layout and options (whole numbers where the parameter is one)."""
    kind = GENERATORS.get(source.name)
    if kind is None:
        raise UsageError(f"workload {source.name!r}: no such generator; expected one of {', '.join(GENERATORS)}")
    made = kind(layout=source.layout)
    options = {name: int(value) if isinstance(getattr(made, name), int) else value for name, value in source.options}
    return replace(made, **options)


def fit_runs(source: Source) -> list[Run]:
    """Runs that no experiment plays, to fit predictors on; of a trace that is not held out, all its runs."""
    if source.trace:
        runs = _trace(source)
        names = _half(runs, fit=True) if source.held_out else {run.name for run in runs.runs}
        return [run for run in runs.runs if run.name in names]
    made = islice(generator(source).workflows(FIT_SEED), FIT_RUNS)
    return [Run(workflow.name, workflow.agents, tuple(call.output.tokens for call in workflow.calls)) for workflow in made]


@lru_cache(maxsize=4)
def workflows(source: Source, seed: int, count: int) -> tuple[TokenWorkflow, ...]:
    """The first `count` workflows of the set `seed`; fewer when a trace has no more."""
    return tuple(islice(workload(source).workflows(seed), count))


@lru_cache(maxsize=64)
def live_tokens(source: Source) -> float:
    """Mean over calls of the distinct tokens that the prompts and outputs of a workflow have had by then: what one workflow in the
    middle of its life would keep in an unlimited cache.
    """
    total, calls = 0, 0
    for workflow in workflows(source, 0, _SIZED):
        for size in _growth(workflow):
            total += size
            calls += 1
    return total / calls


def _growth(workflow: TokenWorkflow) -> Sequence[int]:
    """Distinct tokens after each call: segments are equal only at the same place of equal prompts."""
    paths: dict[tuple[int, int], int] = {}
    size, sizes = 0, list[int]()
    for call in workflow.calls:
        at = 0
        for segment in (*call.prompt, call.output):
            step = (at, segment.key)
            if step not in paths:
                paths[step] = len(paths) + 1
                size += segment.tokens
            at = paths[step]
        sizes.append(size)
    return sizes


@lru_cache(maxsize=8)
def _trace(source: Source) -> RecordedRuns:
    options = {name: int(value) for name, value in source.options}
    loaded = load_workload(source.trace, layout=source.layout, max_calls=options.get("max_calls", 0))
    if not isinstance(loaded, RecordedRuns):
        raise UsageError(f"trace {source.trace!r}: expected a table of agent calls or a folder of conversations")
    return loaded


def _half(runs: RecordedRuns, *, fit: bool) -> set[str]:
    """Names of one of two random halves of the runs, always the same ones."""
    names = sorted(run.name for run in runs.runs)
    chosen = set(Random(f"halves of {runs.name}").sample(names, len(names) // 2))
    return chosen if fit else set(names) - chosen
