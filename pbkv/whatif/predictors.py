"""What predicts in a replay: the recorded predictions, or a predictor that learns anew."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pbkv.errors import UsageError
from pbkv.knobs import K_MAX
from pbkv.predictor.base import END, Moment, Prediction, Predictor
from pbkv.predictor.load import load_predictor
from pbkv.predictor.markov import OnlineMarkov
from pbkv.predictor.mixed import Mixed
from pbkv.predictor.names import Roster
from pbkv.predictor.uniform import Uniform
from pbkv.state import CacheState
from pbkv.whatif.recording import RecordedPrediction, Recording

#: Besides these, the folder of a trained predictor.
NAMES = ("markov", "recorded", "uniform")
#: Ends the binding of a predictor to the agents of the cache it serves.
Bind = Callable[[CacheState], None]


class Recorded:
    """Says again what was said at the same call of the same workflow; about calls that were not recorded it says nothing."""

    version = 0

    def __init__(self, predictions: Mapping[tuple[str, int], tuple[RecordedPrediction, ...]]) -> None:
        self._said = predictions
        self.at_reply = any(len(each) > 1 for each in predictions.values())
        self._agent_id: Callable[[str], int] = lambda name: 0

    def bind(self, state: CacheState) -> None:
        """Agents are called as `state` calls them."""
        self._agent_id = state.agent_id

    def observe(self, path: Sequence[int], agent: int) -> None:
        """There is nothing to learn."""

    def predict(self, moment: Moment) -> Prediction:
        said = self._said.get((moment.workflow, moment.calls), ())
        if not said:
            return Prediction()
        ends, visits = said[min(int(moment.reply), len(said) - 1)]
        named = [{self._agent_id(agent): p for agent, p in each.items()} for each in visits]
        rest = K_MAX - len(named)
        return Prediction((*named, *({} for _ in range(rest))), (*ends, *(0.0 for _ in range(rest))))


def default_name(recording: Recording) -> str:
    """Predictions are made again where that gives the same ones, the online chain; else they are taken as recorded, if they were."""
    return "markov" if recording.predictor == "markov" or not recording.predictions else "recorded"


def predictor_for(recording: Recording, name: str | None) -> tuple[Predictor, Bind]:
    """The predictor of that name, None = the default, and what has to be done with the state of its cache before the first call. Raises
    UsageError.
    """
    name = default_name(recording) if name is None else name
    if name == "recorded":
        if not recording.predictions:
            raise UsageError(f"predictor = {name!r}: {recording.name} has no predictions; use markov, or a log that was read with them")
        said = Recorded(recording.predictions)
        return said, said.bind
    if name == "markov":
        chain = OnlineMarkov()
        return chain, lambda state: _learn(chain, state, recording.history)
    roster = Roster()
    made = Uniform(roster) if name == "uniform" else _trained(name, roster)

    def bind(state: CacheState) -> None:
        roster.bind(state.agent_names)
        _learn(made, state, recording.history)

    return made, bind


def _trained(name: str, roster: Roster) -> Predictor:
    if not Path(name).is_dir():
        raise UsageError(f"predictor = {name[:80]!r}: expected one of {', '.join(NAMES)}, or the folder of a trained predictor")
    return Mixed(load_predictor(name, roster))


def _learn(predictor: Predictor, state: CacheState, history: Sequence[Sequence[str]]) -> None:
    """What a server had seen before the recording begins."""
    for agents in history:
        path = [state.agent_id(agent) for agent in agents]
        for n, agent in enumerate(path):
            predictor.observe(path[:n], agent)
        if path:
            predictor.observe(path, END)
