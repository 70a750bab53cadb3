"""Runs of agents read from traces, and the rows that a predictor is trained and tested on. Runs are never divided between sets."""

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from pbkv.errors import UsageError
from pbkv.knobs import K_MAX
from pbkv.predictor.features import RUNS, Floats, Ints, normalised, view
from pbkv.workloads.tokens import TokenWorkload

#: Calls of a path that a moment keeps, as in the cache.
MAX_PATH = 256
#: Calls of one trace that are read: their rows lie in memory, about 3 KB a call while they are made.
MAX_CALLS = 500_000


@dataclass(frozen=True)
class Trace:
    """One run: the agent of each call and, where there are some, the text signals of each output and of each prompt, [calls, dim] of unit
    length, zero where there is none. Without those of prompts, what is known at a prefill is the newest output. `signal`: their kind.
    """

    name: str
    agents: tuple[str, ...]
    texts: Floats | None = None
    prompts: Floats | None = None
    signal: str = ""

    @property
    def signals(self) -> list[Floats]:
        """All signals: those of outputs, then those of prompts."""
        return [signals for signals in (self.texts, self.prompts) if signals is not None]

    def place(self, n: int, reply: int) -> int:
        """Row of `signals` that is known at call `n`, at its prefill or its reply; -1 = none."""
        if self.texts is None:
            return -1
        if self.prompts is not None and not reply:
            return len(self.texts) + n if self.prompts[n].any() else -1
        return n - 1 + reply if n + reply and self.texts[n - 1 + reply].any() else -1

    def known(self, n: int, reply: int) -> Floats | None:
        """The signal itself, [dim]; None = there is none."""
        place, outputs = self.place(n, reply), 0 if self.texts is None else len(self.texts)
        return None if place < 0 else self.signals[place >= outputs][place % outputs]


def from_workload(workload: TokenWorkload, limit: int | None = None, seed: int = 0) -> list[Trace]:
    """The first `limit` runs of a workload. Raises UsageError when it does not say which agents call."""
    traces: list[Trace] = []
    calls = 0
    for workflow in islice(workload.workflows(seed), limit):
        if not workflow.attributed:
            raise UsageError(f"workload {workload.name!r} does not name agents: nothing can be learned from it; choose one that does")
        texts, prompts = (_texts(workload.name, s) for s in ([c.text for c in workflow.calls], [c.heard for c in workflow.calls]))
        traces.append(Trace(workflow.name, workflow.agents, texts, prompts, getattr(workload, "signal", "")))
        if (calls := calls + len(workflow.calls)) > MAX_CALLS:
            raise UsageError(f"workload {workload.name!r} has more than {MAX_CALLS} calls; use a part of it")
    return [trace for trace in traces if trace.agents]


def load_traces(paths: Iterable[Path]) -> list[Trace]:
    """All runs of files and folders, whatever kind each is. Raises UsageError that names the file and its fault."""
    from pbkv.workloads.adapters.detect import load_workload

    traces = [trace for path in paths for trace in from_workload(load_workload(path))]
    if not traces:
        raise UsageError("traces hold no run that names its agents; give at least one file or folder of runs")
    text_dim(traces)
    signal_kind(traces)
    return traces


def _texts(name: str, signals: Sequence[bytes | None]) -> Floats | None:
    known = [signal for signal in signals if signal is not None]
    if not known:
        return None
    if len(known) < len(signals) or len({len(signal) for signal in known}) > 1:
        raise UsageError(f"workload {name!r}: text signals are missing or differ in length within a run; give one per call, of one length")
    return normalised(np.stack([np.frombuffer(signal, np.int8) for signal in known]).astype(np.float32))


def text_dim(traces: Iterable[Trace]) -> int:
    """Length of the text signals, 0 without any. Raises UsageError when runs differ in it."""
    found = {trace.texts.shape[1] for trace in traces if trace.texts is not None}
    if len(found) > 1:
        raise UsageError(f"text signals have lengths {sorted(found)}: expected one length in all traces")
    return found.pop() if found else 0


def signal_kind(traces: Iterable[Trace]) -> str:
    """Kind of the text signals, see `pbkv.predictor.signal`; empty = none, or those of a trace. Raises UsageError when runs differ."""
    found = {trace.signal for trace in traces if trace.texts is not None}
    if len(found) > 1:
        names = ", ".join(sorted(repr(kind) for kind in found))
        raise UsageError(f"text signals are of the kinds {names}, which say nothing about each other: train on recordings of one server")
    return found.pop() if found else ""


def digest(traces: Iterable[Trace]) -> str:
    """SHA-256 of names, agents and signals, in order: which data a predictor was made from."""
    made = hashlib.sha256()
    for trace in traces:
        made.update(repr((trace.name, trace.agents)).encode(errors="surrogatepass"))
        for signals in trace.signals:
            made.update(signals.tobytes())
    return made.hexdigest()


def split(traces: Sequence[Trace], parts: Sequence[float], seed: int) -> list[list[Trace]]:
    """Whole runs into sets of these shares; the last takes the rest. The same seed gives the same sets."""
    order = random.Random(f"split {seed}").sample(range(len(traces)), len(traces))
    sets: list[list[Trace]] = []
    for part in parts[:-1]:
        size = round(part * len(traces))
        sets.append([traces[i] for i in sorted(order[:size])])
        order = order[size:]
    return [*sets, [traces[i] for i in sorted(order)]]


def folds(traces: Sequence[Trace], count: int, seed: int) -> list[tuple[list[Trace], list[Trace]]]:
    """(others, fold) for each of `count` folds of whole runs."""
    order = random.Random(f"folds {seed}").sample(range(len(traces)), len(traces))
    held = [set(order[n::count]) for n in range(count)]
    return [([t for i, t in enumerate(traces) if i not in fold], [traces[i] for i in sorted(fold)]) for fold in held]


def roster(traces: Iterable[Trace]) -> list[str]:
    """All agents in the order they are first called."""
    return list(dict.fromkeys(agent for trace in traces for agent in trace.agents))


@dataclass(frozen=True)
class Rows:
    """N moments, two for each call (prefill, reply), as arrays of one row each. `agents`, `lengths`, `turns`: [N, RUNS], newest first, -1
    where the path has fewer runs. `text`: row of `texts` that is known, -1 = none. `targets`: [N, K_MAX] agent, A = END, -1 = ended before.
    """

    agents: Ints
    lengths: Ints
    turns: Ints
    calls: Ints
    reply: Ints
    text: Ints
    targets: Ints
    texts: Floats

    def __len__(self) -> int:
        return len(self.calls)


def rows(traces: Sequence[Trace], names: Sequence[str], *, at_prefill: bool = True, at_reply: bool = True) -> Rows:
    """Rows of all calls of the traces. Raises KeyError for an agent that is not in `names`."""
    ids = {name: n for n, name in enumerate(names)}
    moments = [reply for reply, wanted in ((0, at_prefill), (1, at_reply)) if wanted]
    columns: list[tuple[list[int], list[int], list[int], int, int, int, list[int]]] = []
    start = 0
    for trace in traces:
        path = [ids[agent] for agent in trace.agents]
        future = [*path, len(names), *[-1] * (K_MAX - 1)]
        for n in range(len(path)):
            seen = view(path[max(0, n + 1 - MAX_PATH) : n + 1])
            target = future[n + 1 : n + 1 + K_MAX]
            for reply in moments:
                place = trace.place(n, reply)
                text = start + place if place >= 0 else -1
                columns.append((_pad(seen.agents), _pad(seen.lengths), _pad(seen.turns), n + 1, reply, text, target))
        start += sum(len(part) for part in trace.signals)
    signals = [part for trace in traces for part in trace.signals]
    texts = np.concatenate(signals) if signals else np.zeros((0, 0), np.float32)
    arrays = [np.array(column, np.int64) for column in zip(*columns, strict=True)]
    return Rows(arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], arrays[5], arrays[6], texts)


def _pad(values: list[int]) -> list[int]:
    return values + [-1] * (RUNS - len(values))
