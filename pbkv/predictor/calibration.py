"""Probabilities that mean what they say: a temperature and a doubt per moment and step, fitted on runs that training did not see.

    p = (1 - doubt) softmax(logits / temperature) + doubt / classes

A temperature alone (Guo et al. 2017, "On Calibration of Modern Neural Networks") has to flatten everything when a few outcomes were held
for nearly impossible; the doubt takes those and leaves the temperature near 1.
"""

import numpy as np

from pbkv.knobs import K_MAX
from pbkv.predictor.features import Floats, Ints

#: Temperatures lie between these; doubts are tried one by one.
LOW, HIGH = 0.25, 4.0
DOUBTS = (0.0, 0.003, 0.01, 0.02, 0.03, 0.05, 0.08)
#: Fewer outcomes than this tell nothing: temperature 1 and the smallest doubt that is not none.
MIN_OUTCOMES = 50
_SAMPLE = 8_000
_THIRDS = 14


def fit(logits: Floats, targets: Ints) -> list[tuple[float, float]]:
    """(temperature, doubt) of each step with the least mean -log p[target]. `logits` [N, K_MAX, classes], `targets` [N, K_MAX], -1 = no
    outcome.
    """
    return [_fit(logits[:, k], targets[:, k]) for k in range(K_MAX)]


def _fit(logits: Floats, targets: Ints) -> tuple[float, float]:
    known = np.flatnonzero(targets >= 0)
    if len(known) < MIN_OUTCOMES:
        return 1.0, DOUBTS[1]
    known = known[:: max(1, len(known) // _SAMPLE)]
    found = [(*_coolest(logits[known].astype(np.float64), targets[known], doubt), doubt) for doubt in DOUBTS]
    _, temperature, doubt = min(found)
    return round(temperature, 4), doubt


def _coolest(logits: np.ndarray, targets: Ints, doubt: float) -> tuple[float, float]:
    """(loss, temperature) of the best temperature, by thirds: the loss has one valley along its logarithm."""
    low, high = np.log(LOW), np.log(HIGH)
    for _ in range(_THIRDS):
        third = (high - low) / 3
        if _loss(logits, targets, np.exp(low + third), doubt) < _loss(logits, targets, np.exp(high - third), doubt):
            high -= third
        else:
            low += third
    temperature = float(np.exp((low + high) / 2))
    return _loss(logits, targets, temperature, doubt), temperature


def _loss(logits: np.ndarray, targets: Ints, temperature: float, doubt: float) -> float:
    p = np.exp((logits - logits.max(1, keepdims=True)) / temperature)
    chosen = p[np.arange(len(targets)), targets] / p.sum(1)
    return float(-np.log(np.maximum((1 - doubt) * chosen + doubt / logits.shape[1], 1e-12)).mean())
