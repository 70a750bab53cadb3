"""Runs of the embedded engine in virtual time, through the real event stream into a real store, and back as recordings."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from collector import client
from collector.store import Store
from pbkv.engine.engine import Engine
from pbkv.engine.play import PlaySettings, play
from pbkv.engine.settings import EngineSettings
from pbkv.events.schema import BY_NAME
from pbkv.events.wire import Message, decode
from pbkv.events.writer import EventWriter
from pbkv.knobs import KnobSet
from pbkv.predictor.base import Predictor
from pbkv.whatif.log import Reading, read_log
from pbkv.whatif.logwindow import Query
from pbkv.whatif.recording import Recording
from pbkv.whatif.replay import replay
from pbkv.workloads.tokens import TokenWorkload
from tests.support.stream import Recorder

#: Wall clock of the runs' beginning, ns: 2026-01-01 12:00 UTC.
WALL_NS = 1_767_268_800_000_000_000
#: What two runs are compared by. Settings and knobs are not: a replay changes knobs without anybody asking for it.
COMPARED = ("call", "page", "workflow", "prediction", "node_score", "eviction", "prefetch", "pcie_window", "occupancy", "batch")


def report(engine: Engine) -> Recorder:
    """Have the engine write its log, all clocks being its own."""
    sink = Recorder()
    engine.report_to(EventWriter(
        "embedded", sink, epoch=1, monotonic_ns=lambda: int(engine.now * 1e9), wall_ns=lambda: WALL_NS + int(engine.now * 1e9),
    ))
    return sink


@dataclass
class Run:
    """A log, as messages."""

    payloads: list[bytes] = field(default_factory=list[bytes])

    @property
    def messages(self) -> list[Message]:
        return [decode(payload) for payload in self.payloads]

    def table(self, kind: str) -> np.ndarray:
        """All records of a kind."""
        parts = [message.tables[kind] for message in self.messages if kind in message.tables]
        return np.concatenate(parts) if parts else np.empty(0, BY_NAME[kind].dtype)

    def store(self, path: Path) -> Path:
        """Into a store of its own."""
        store = Store(path)
        try:
            messages = self.messages
            for start in range(0, len(messages), 2000):
                store.commit(messages[start : start + 2000])
        finally:
            store.close()
        return path


def make_engine(settings: Mapping[str, Any], knobs: Mapping[str, Any], predictor: Predictor | None = None) -> Engine:
    sizes: dict[str, Any] = {"max_running": 8, **settings}
    return Engine(EngineSettings(**sizes), KnobSet({**KnobSet().values, **knobs}), predictor)


def run_play(engine: Engine, workload: TokenWorkload, **how: Any) -> Run:
    """Play to the end, logged."""
    sink = report(engine)
    play(engine, workload, PlaySettings(**{"concurrency": 8, "workflows": 40, **how}))
    if engine.reporter:
        engine.reporter.step_ended()
    return Run(sink.payloads)


@contextmanager
def opened(path: Path) -> Generator[Query]:
    """How a reader of the log asks it."""
    with client.open(str(path)) as reader:
        yield lambda sql, params: reader.sql(sql, params, deadline_s=30)


def read(path: Path, reading: Reading | None = None) -> Recording:
    with opened(path) as query:
        return read_log(query, reading)


def replayed(recording: Recording, **how: Any) -> Run:
    """The log of the recording's replay."""
    engines: list[tuple[Engine, Recorder]] = []
    watch: Callable[[Engine], None] = lambda engine: engines.append((engine, report(engine)))  # noqa: E731
    replay(recording, watch=watch, **how)
    ((engine, sink),) = engines
    if engine.reporter:
        engine.reporter.step_ended()
    return Run(sink.payloads)


def _plain(run: Run, kind: str) -> list[tuple[Any, ...]]:
    """Rows without their places in messages. Page ids are digests under a key of the run: the n-th page stands for itself."""
    number = {0: 0}
    for page in run.table("page")["page"].tolist():
        number.setdefault(page, len(number))
    texts = {0: "", **{int(row["id"]): row["text"].decode() for row in run.table("name")}}
    rows, columns = run.table(kind), list[list[Any]]()
    for each in BY_NAME[kind].fields:
        values = rows[each.name].tolist()
        if each.name in ("page", "end_page") or (each.name, kind) == ("parent", "page"):
            values = [number[page] for page in values]
        columns.append([texts[value] for value in values] if each.ref is not None else values)
    return list(zip(*columns, strict=True))


def differences(one: Run, other: Run, kinds: tuple[str, ...] = COMPARED) -> dict[str, Any]:
    """By kind, where the two logs first differ; empty = they are the same, row for row."""
    found: dict[str, Any] = {}
    for kind in kinds:
        ours, theirs = _plain(one, kind), _plain(other, kind)
        if ours != theirs:
            at = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
            found[kind] = (len(ours), len(theirs), at, ours[at : at + 1], theirs[at : at + 1])
    return found


def rows_of(query: Query, sql: str) -> pa.Table:
    return query(sql, {})
