"""The predictor of a cell, fitted on workflows that the cell does not play."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pbkv.bench.cell import BLIND, Cell, Source
from pbkv.bench.source import fit_runs, generator, workflows
from pbkv.errors import UsageError
from pbkv.predictor.base import END, Moment, Prediction, Predictor
from pbkv.predictor.markov import OnlineMarkov
from pbkv.predictor.names import Roster
from pbkv.predictor.noisy import Noisy
from pbkv.predictor.perfect import Perfect
from pbkv.predictor.uniform import Uniform
from pbkv.state import CacheState
from pbkv.workloads.bayes import Bayes

PREDICTORS = ("markov", "online", "bayes", "perfect", "uniform")


class Fitted:
    """A predictor that learns no more."""

    def __init__(self, base: OnlineMarkov) -> None:
        self._base = base
        self.version, self.at_reply = base.version, base.at_reply

    def observe(self, path: Sequence[int], agent: int) -> None:
        """What is fitted stays as it is."""

    def predict(self, moment: Moment) -> Prediction:
        return self._base.predict(moment)


@dataclass
class Made:
    """A predictor; `bind` lets it know the cache's agent ids, in which `known` come first."""

    predictor: Predictor
    roster: Roster
    known: Sequence[str] = field(default_factory=tuple[str, ...])

    def bind(self, state: CacheState) -> None:
        """Before the first call: the ids that it was fitted with are given out, and it follows the cache's list."""
        for name in self.known:
            state.agent_id(name)
        self.roster.bind(state.agent_names)


def make_predictor(cell: Cell) -> Made:
    """The cell's predictor, spoilt by its noise. Raises UsageError for one that does not exist, or not for this source."""
    roster = Roster()
    made = _base(cell, roster)
    if cell.noise:
        made.predictor = Noisy(made.predictor, cell.noise, roster, cell.seed)
    return made


def _base(cell: Cell, roster: Roster) -> Made:
    name, source = cell.predictor, cell.source
    if not name or name == "online" or (cell.policy in BLIND and cell.prefetch == "off"):
        return Made(OnlineMarkov(), roster)
    if name == "markov":
        ids, transitions = _transitions(source)
        return Made(Fitted(_markov(transitions)), roster, ids)
    if name == "uniform":
        return Made(Uniform(roster), roster)
    if name == "perfect":
        count = cell.warm + cell.workflows + 2 * cell.concurrency
        return Made(Perfect({w.name: w.agents for w in workflows(source, cell.seed, count)}, roster), roster)
    if name == "bayes" and not source.trace:
        return Made(Bayes(generator(source).process, roster), roster)
    if name.startswith("dir:"):
        from pbkv.predictor.load import load_predictor

        return Made(load_predictor(name.removeprefix("dir:"), roster), roster)
    names = ", ".join(PREDICTORS)
    raise UsageError(f"predictor {name!r} for {source.name!r}: expected one of {names} (bayes: for generators only) or dir:PATH")


@lru_cache(maxsize=4)
def _transitions(source: Source) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """Agents met in the fitting runs, and all transitions between them by place in that list."""
    ids: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    for run in fit_runs(source):
        numbers = [ids.setdefault(agent, len(ids)) for agent in run.agents]
        pairs += zip(numbers, [*numbers[1:], END], strict=True)
    return tuple(ids), tuple(pairs)


def _markov(transitions: Sequence[tuple[int, int]]) -> OnlineMarkov:
    markov = OnlineMarkov()
    for before, after in transitions:
        markov.observe((before,), after)
    return markov
