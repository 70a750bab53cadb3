"""A trained predictor and an online Markov chain, mixed by what each has been worth lately: new agents and new habits are caught up with
within tens of calls, and where the trained one is right it stays in charge.

Per current agent and step k, the weight of either is proportional to exp(sum of FORGET^age * log of what it gave to what came).
(Exponential weights with forgetting: Herbster and Warmuth 1998, "Tracking the Best Expert".)
"""

import math
from collections import OrderedDict
from collections.abc import Sequence

from pbkv.knobs import K_MAX
from pbkv.predictor.base import Moment, Prediction, Predictor, predict_all
from pbkv.predictor.markov import OnlineMarkov

#: How fast older outcomes lose their say: the newest 1 / (1 - FORGET) = 50 outcomes of an agent and step count.
FORGET = 0.98
#: Advance of the trained predictor, in nats: who has seen nothing yet trusts it 9 to 1.
ADVANCE = math.log(9.0)
#: Least probability that an outcome is taken to have had: one surprise does not silence anybody for long.
FLOOR = 1e-3
#: Workflows and agents whose predictions and weights are kept.
MAX_WORKFLOWS, MAX_AGENTS = 8192, 4096

_Pair = tuple[int, int, Prediction, Prediction]  # calls, current agent, trained, online


class Mixed:
    """The end of a run is not scored: it is told without the name of the workflow. Plain Python, deterministic: ranks that ask the same
    in the same order are answered the same, if the trained predictor does so.
    """

    version = 8

    def __init__(self, trained: Predictor, online: OnlineMarkov | None = None) -> None:
        self._trained, self.online = trained, online or OnlineMarkov()
        self.at_reply = trained.at_reply
        self._evidence: dict[int, list[float]] = {}
        self._pending: OrderedDict[str, list[_Pair]] = OrderedDict()

    def observe(self, path: Sequence[int], agent: int) -> None:
        self._trained.observe(path, agent)
        self.online.observe(path, agent)

    def predict(self, moment: Moment) -> Prediction:
        return self._mix(moment, self._trained.predict(moment)) if moment.path else Prediction()

    def predict_many(self, moments: Sequence[Moment]) -> list[Prediction]:
        """The same as one after the other, with the trained predictor asked for all at once; every path must have a call."""
        return [self._mix(moment, trained) for moment, trained in zip(moments, predict_all(self._trained, moments), strict=True)]

    def _mix(self, moment: Moment, trained: Prediction) -> Prediction:
        online = self.online.predict(moment)
        pending = self._pending.pop(moment.workflow, [])
        # What came is scored once, at the first prediction after it.
        if not pending or pending[-1][0] < moment.calls:
            self._score(pending, moment)
        agent = moment.path[-1]
        # A prediction made at the reply of a call takes the place of the one made at its prefill.
        recent = [pair for pair in pending if moment.calls - K_MAX < pair[0] < moment.calls]
        self._pending[moment.workflow] = [*recent, (moment.calls, agent, trained, online)]
        if len(self._pending) > MAX_WORKFLOWS:
            self._pending.popitem(last=False)
        return mix(trained, online, self.weights(agent))

    def _score(self, pending: list[_Pair], moment: Moment) -> None:
        came = moment.path[-1]
        for calls, agent, trained, online in pending:
            k = moment.calls - calls
            if 1 <= k <= K_MAX and (evidence := self._of(agent)) is not None:
                gain = math.log(_given(trained, k, came)) - math.log(_given(online, k, came))
                evidence[k - 1] = FORGET * evidence[k - 1] + gain

    def _of(self, agent: int) -> list[float] | None:
        known = self._evidence.get(agent)
        if known is None and len(self._evidence) < MAX_AGENTS:
            known = self._evidence[agent] = [ADVANCE] * K_MAX
        return known

    def weights(self, agent: int) -> list[float]:
        """Share of the trained predictor at each step, for predictions made at `agent`."""
        return [1 / (1 + math.exp(-min(max(e, -50.0), 50.0))) for e in self._evidence.get(agent, [ADVANCE] * K_MAX)]


def _given(prediction: Prediction, k: int, agent: int) -> float:
    """Probability that step k, if it exists, is `agent`; at least FLOOR."""
    if not prediction.ends or (alive := prediction.survival(k)) <= 0:
        return FLOOR
    return min(1.0, max(FLOOR, prediction.visits[k - 1].get(agent, 0.0) / alive))


def mix(one: Prediction, other: Prediction, weights: Sequence[float]) -> Prediction:
    """w_k P_one^(k) + (1 - w_k) P_other^(k), each given that step k exists, chained to visits and ends anew; an empty one has no say."""
    if not one.ends or not other.ends:
        return one if one.ends else other
    visits: list[dict[int, float]] = []
    ends: list[float] = []
    alive = 1.0
    for k, (weight, one_alive, other_alive) in enumerate(zip(weights, _survivals(one), _survivals(other), strict=True)):
        shares = (one, weight, one_alive), (other, 1 - weight, other_alive)
        parts = [(p.visits[k], p.ends[k], share * alive / s) for p, share, s in shares if s > 0 and share > 0]
        step: dict[int, float] = {}
        end = 0.0
        for visit, ending, scale in parts:
            end += scale * ending
            for agent, p in visit.items():
                step[agent] = step.get(agent, 0.0) + scale * p
        visits.append(step)
        ends.append(end)
        alive = max(0.0, alive - end)
    return Prediction(tuple(visits), tuple(ends))


def _survivals(prediction: Prediction) -> list[float]:
    """`Prediction.survival` of all steps."""
    gone, survivals = 0.0, list[float]()
    for end in prediction.ends:
        survivals.append(max(0.0, 1.0 - gone))
        gone += end
    return survivals
