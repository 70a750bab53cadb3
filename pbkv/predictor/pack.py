"""Predictions as whole numbers, for ranks that must score the same to the bit whatever their processors make of a sum of floats.

Probabilities are multiples of 2^-24, which floats hold exactly. The rank that predicted uses what it sent, not what it had.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pbkv.predictor.base import Prediction
from pbkv.predictor.budget import Answer

#: Units of a probability of 1.
ONE = 1 << 24
Packed = NDArray[np.int32]


def pack(answers: Sequence[Answer]) -> Packed:
    """Per answer: version, number of steps; per step: units of its end, number of agents; per agent: id, units. Zeros are left out."""
    numbers: list[int] = []
    for prediction, version in answers:
        numbers += (version, len(prediction.ends))
        for visits, end in zip(prediction.visits, prediction.ends, strict=True):
            kept = [(agent, units) for agent, p in visits.items() if (units := round(p * ONE)) > 0]
            numbers += (round(end * ONE), len(kept))
            for pair in kept:
                numbers += pair
    return np.array(numbers, np.int32)


def unpack(packed: Packed, count: int) -> list[Answer]:
    """`count` answers. Raises ValueError when the numbers are not that many answers."""
    numbers = iter(packed.tolist())
    try:
        answers = [_answer(numbers) for _ in range(count)]
    except StopIteration:
        raise ValueError("predictions end in the middle") from None
    if next(numbers, None) is not None:
        raise ValueError("there is more than the predictions")
    return answers


def _answer(numbers: Iterator[int]) -> Answer:
    version, steps = next(numbers), next(numbers)
    visits: list[dict[int, float]] = []
    ends: list[float] = []
    for _ in range(steps):
        ends.append(next(numbers) / ONE)
        # A generator would turn the end of the numbers into an error of its own.
        visit: dict[int, float] = {}
        for _ in range(next(numbers)):
            agent = next(numbers)
            visit[agent] = next(numbers) / ONE
        visits.append(visit)
    return Answer(Prediction(tuple(visits), tuple(ends)), version)
