"""How good a predictor is on runs: accuracy, NLL, Brier score and calibration error, per moment and step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pbkv.knobs import K_MAX
from pbkv.predictor.base import END, Moment, Prediction, Predictor
from pbkv.predictor.dataset import MAX_PATH, Trace

MOMENTS = ("prefill", "reply")
#: Bins of equal width for the expected calibration error.
BINS = 15
#: A probability below this counts as this in the NLL, which would be infinite otherwise.
FLOOR = 1e-6


@dataclass
class Score:
    """Outcomes of one moment and step. A step after the end of a run has no outcome; the end itself is one, END its class."""

    confidence: list[float] = field(default_factory=list[float])
    hit: list[bool] = field(default_factory=list[bool])
    p_true: list[float] = field(default_factory=list[float])
    squares: list[float] = field(default_factory=list[float])

    def add(self, classes: dict[int, float], truth: int) -> None:
        """`classes`: probability of each agent and END, given that the step exists. Without any, nothing was known: a miss."""
        best = max(classes, key=classes.__getitem__, default=None)
        self.confidence.append(classes[best] if best is not None else 0.0)
        self.hit.append(best == truth)
        self.p_true.append(classes.get(truth, 0.0))
        self.squares.append(sum(p * p for p in classes.values()))

    def extend(self, other: "Score") -> None:
        """Take in the outcomes of another set of runs."""
        for name in ("confidence", "hit", "p_true", "squares"):
            getattr(self, name).extend(getattr(other, name))

    def summary(self) -> dict[str, float]:
        """{"n", "accuracy", "nll" (nats), "brier" (0 to 2), "ece"}."""
        hits, p = np.array(self.hit, float), np.array(self.p_true)
        found = {
            "accuracy": hits.mean(), "nll": -np.log(np.maximum(p, FLOOR)).mean(), "brier": (np.array(self.squares) - 2 * p + 1).mean(),
            "ece": calibration_error(np.array(self.confidence), hits),
        }
        return {"n": len(hits), **{name: round(float(value), 4) for name, value in found.items()}}


def calibration_error(confidence: np.ndarray, hits: np.ndarray) -> float:
    """Expected calibration error of the likeliest class: sum over bins of share * |accuracy - mean confidence|."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    error = 0.0
    for n in range(BINS):
        chosen = place == n
        if chosen.any():
            error += chosen.mean() * abs(hits[chosen].mean() - confidence[chosen].mean())
    return error


def classes(prediction: Prediction, k: int) -> dict[int, float]:
    """Distribution over agents and END at step k (from 1), given that the run has not ended before it."""
    if not prediction.ends or (alive := prediction.survival(k)) <= 0:
        return {}
    return {END: prediction.ends[k - 1] / alive, **{agent: p / alive for agent, p in prediction.visits[k - 1].items()}}


def evaluate(
    predictor: Predictor, traces: Sequence[Trace], names: list[str], *, steps: int = K_MAX, learn: bool = False,
    progress: Callable[[int], None] | None = None,
) -> dict[str, list[dict[str, float]]]:
    """{moment: [summary of step 1, 2, ...]}. `names` is the list that the predictor's roster is bound to; it grows as agents appear, as in
    a cache. `learn`: transitions are observed, as in a cache. A predictor without `at_reply` is asked at prefill only.
    """
    scores = judge(predictor, traces, names, steps=steps, learn=learn, progress=progress)
    return {moment: [score.summary() for score in row if score.hit] for moment, row in scores.items()}


def judge(
    predictor: Predictor, traces: Sequence[Trace], names: list[str], *, steps: int = K_MAX, learn: bool = False,
    progress: Callable[[int], None] | None = None,
) -> dict[str, list[Score]]:
    """The same before it is summed up, so that the folds of a cross-validation can be put together."""
    ids = {name: n for n, name in enumerate(names)}
    scores = {moment: [Score() for _ in range(steps)] for moment in MOMENTS[: 1 + predictor.at_reply]}
    for done, trace in enumerate(traces):
        run = _Run(trace, [_id(ids, names, agent) for agent in trace.agents])
        for n in range(len(run.agents)):
            if learn:
                predictor.observe(run.path(n - 1), run.agents[n])
            for reply, moment in enumerate(scores):
                _add(scores[moment], predictor.predict(run.moment(n, reply)), run.coming(n, steps))
        if learn:
            predictor.observe(run.path(len(run.agents) - 1), END)
        if progress:
            progress(done + 1)
    return scores


def _add(scores: list[Score], prediction: Prediction, coming: list[int]) -> None:
    for k, (score, truth) in enumerate(zip(scores, coming, strict=False), 1):
        score.add(classes(prediction, k), truth)


def _id(ids: dict[str, int], names: list[str], agent: str) -> int:
    if agent not in ids:
        ids[agent] = len(names)
        names.append(agent)
    return ids[agent]


@dataclass(frozen=True)
class _Run:
    trace: Trace
    agents: list[int]

    def path(self, n: int) -> list[int]:
        return self.agents[max(0, n + 1 - MAX_PATH) : n + 1]

    def coming(self, n: int, steps: int) -> list[int]:
        return [*self.agents, END][n + 1 : n + 1 + steps]

    def moment(self, n: int, reply: int) -> Moment:
        return Moment(self.trace.name, self.path(n), n + 1, bool(reply), self.trace.known(n, reply))
