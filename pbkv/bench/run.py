"""Runs one cell: workflows, predictor, policy and engine as it says, in virtual time."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice

from pbkv.bench.cell import Cell, Result, Source
from pbkv.bench.future import FutureReads, Scripts
from pbkv.bench.predictors import make_predictor
from pbkv.bench.source import workflows, workload
from pbkv.engine.engine import Engine
from pbkv.engine.pages import PageNamer
from pbkv.engine.play import Player, PlaySettings
from pbkv.engine.requests import EngineRequest, Finished
from pbkv.engine.settings import EngineSettings
from pbkv.engine.timing import Linear, Timing, preset
from pbkv.errors import UsageError
from pbkv.eviction.clairvoyant import Clairvoyant
from pbkv.eviction.first_use import FirstUse
from pbkv.knobs import KnobSet, Value
from pbkv.workloads.tokens import Segment, TokenWorkflow

#: Idle time after which a workflow is retired: never, since queues can be longer than any real think time.
_NEVER_S = 86_400.0
#: Decode step, s, that the prefetch budget is counted for.
_STEP_S = 0.025
#: Calls between two times at which the clairvoyant's order is made anew: its estimate of how long calls take has moved.
_REFRESH = 200
_NOTHING = Segment(0, 0)


def run_cell(cell: Cell) -> Result:
    """Figures of one run, times in s, hit rates in percent."""
    if cell.replay:
        from pbkv.bench.replay import run_replay

        return run_replay(cell)
    played = make_player(cell).run()
    return {
        "hit_device": 100 * played.device_hit, "hit": 100 * played.hit, "ttft_mean": played.ttft_mean, "ttft_p50": played.ttft_p50,
        "ttft_p95": played.ttft_p95, "latency_mean": played.workflow_latency_mean, "calls_per_s": played.calls_per_s,
        "calls": played.calls_measured, "engine_s": played.engine_s, "evicted_tokens": played.evicted_tokens,
        "evicted_retired_tokens": played.evicted_retired_tokens, "retractions": played.retractions, "backup_bytes": played.backup_bytes,
        "demand_bytes": played.demand_load_bytes, "prefetch_bytes": played.prefetch_bytes, "prefetches": played.prefetches,
    }


def supply(cell: Cell) -> int:
    """Workflows that are made ahead of a run; it rarely starts more."""
    return cell.warm + cell.workflows + 2 * cell.concurrency


class Known:
    """The cell's workflows, the first ones made once per process."""

    def __init__(self, cell: Cell) -> None:
        self.name = cell.source.name
        self._cell = cell

    def workflows(self, seed: int) -> Iterator[TokenWorkflow]:
        """As pbkv.workloads.tokens.TokenWorkload."""
        made = workflows(self._cell.source, seed, supply(self._cell))
        return chain(made, islice(workload(self._cell.source).workflows(seed), len(made), None))


@lru_cache(maxsize=2)
def namer_of(source: Source, page_size: int) -> PageNamer:
    """One naming of pages for all runs of a source in this process."""
    return PageNamer(page_size)


class CellPlayer(Player):
    """A player that names pages as others of its process do, and tells the clairvoyant what has happened."""

    def __init__(self, engine: Engine, cell: Cell, future: FutureReads | None = None) -> None:
        super().__init__(engine, Known(cell), PlaySettings(cell.concurrency, cell.workflows, cell.warm, cell.stagger_s, cell.seed))
        self._namer = namer_of(cell.source, cell.page_size)
        self.engine, self._future = engine, future
        self._told = 0
        #: When set: admission time, request, and whether it is measured, of each call that has ended.
        self.log: list[tuple[float, EngineRequest, bool]] | None = None

    def _ended(self, ended: Finished) -> None:
        if self._future is not None:
            self._future.ended(ended.request.workflow, ended.arrived, ended.ended)
            self._told += 1
            if self._told % _REFRESH == 0:
                manager = self._engine.manager
                manager.device.order_by(manager.policy.key)
        if self.log is not None:
            number = self._inside[ended.request.id].number
            self.log.append((ended.admitted, ended.request, self._settings.warm <= number < self._until))
        super()._ended(ended)


def make_player(cell: Cell) -> CellPlayer:
    """Engine, policy and predictor of a cell, ready to run."""
    engine = make_engine(cell)
    if cell.policy != "clairvoyant":
        return CellPlayer(engine, cell)
    future = FutureReads(scripts(cell.source, cell.seed, supply(cell), cell.page_size))
    engine.manager.use(Clairvoyant(engine.manager.rekeyed, future))
    return CellPlayer(engine, cell, future)


def make_engine(cell: Cell) -> Engine:
    """An engine with the cell's knobs, predictor and, in part switched off, policy."""
    knobs: dict[str, Value] = {
        "policy": cell.policy if cell.policy not in ("clairvoyant", "belady") else "lru", "gamma": cell.gamma, "k": cell.k,
        "prefetch": cell.prefetch if cell.host_tokens else "off", "host_order": cell.host_order, "retire_idle_s": _NEVER_S,
        "prefetch_budget": int(cell.link_bytes_per_s * _STEP_S),
    }
    made = make_predictor(cell)
    engine = Engine(_settings(cell), KnobSet({**KnobSet().values, **knobs}), made.predictor)
    made.bind(engine.manager.state)
    if cell.parts:
        engine.manager.use(_without(engine, cell))
    return engine


def _settings(cell: Cell) -> EngineSettings:
    return EngineSettings(
        cell.page_size, cell.device_tokens, cell.host_tokens, cell.write_policy, cell.max_running, cell.chunk_tokens,  # type: ignore[arg-type]
        cell.link_share, _timing(cell),
    )


def _timing(cell: Cell) -> Timing:
    """linear, or MODEL@GPU/TP; the link's rate is the cell's in both."""
    if cell.timing == "linear":
        return replace(Linear(), link_bytes_per_s=cell.link_bytes_per_s)
    name, _, gpus = cell.timing.partition("/")
    return preset(name, int(gpus or 1))


def _without(engine: Engine, cell: Cell) -> FirstUse:
    """first_use with some of its parts off."""
    if cell.policy != FirstUse.name:
        raise UsageError(f"policy {cell.policy!r} has no parts {', '.join(cell.parts)}; only {FirstUse.name} has")
    off = set(cell.parts)
    return FirstUse(
        engine.manager.reads, stale="stale" not in off, structural_reads="structural_reads" not in off,
        first_passage="first_passage" not in off, hold="hold" not in off,
    )


@lru_cache(maxsize=1)
def scripts(source: Source, seed: int, count: int, page_size: int) -> Scripts:
    """What the first `count` workflows of a set will read, and the delay before each call."""
    namer = namer_of(source, page_size)
    return Scripts(
        (w.name, (tuple(namer.call(call.prompt, _NOTHING)[1] for call in w.calls), [call.delay_s for call in w.calls]))
        for w in workflows(source, seed, count)
    )
