"""Reuse scores: for a live workflow w, U_w[a] = sum_{k=1..K} gamma^(k-1) s_w^(k) P_w^(k)[a]; then Score(c) = sum_w A_w(c) . U_w.

Source: Eq. 1 and Eq. 2 of arXiv 2605.06472.
"""

from collections.abc import Iterable

from pbkv.predictor.base import Prediction
from pbkv.record import SCORE_ONE


def reuse_vector(prediction: Prediction, gamma: float, k: int) -> dict[int, int]:
    """U_w: agent id -> expected discounted visits in the next k steps, in units of 1/SCORE_ONE (Eq. 2)."""
    total: dict[int, float] = {}
    weight = 1.0
    for step in prediction.visits[:k]:
        for agent, p in step.items():
            total[agent] = total.get(agent, 0.0) + weight * p
        weight *= gamma
    return {agent: round(u * SCORE_ONE) for agent, u in total.items()}


def next_vector(prediction: Prediction) -> dict[int, int]:
    """P_w^(1): agent id -> probability of being called next, in units of 1/SCORE_ONE (Eq. 1)."""
    return {agent: round(p * SCORE_ONE) for agent, p in prediction.visits[0].items()} if prediction.visits else {}


def dot(agents: Iterable[int], vector: dict[int, int]) -> int:
    """A_w(c) . U_w for a 0/1 vector given as the set of its agents."""
    return sum(vector.get(agent, 0) for agent in agents)
