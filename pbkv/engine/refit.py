"""Timing from a log: straight lines through the steps that were measured, robust against the few that something else delayed."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pbkv.engine.timing import Linear
from pbkv.errors import UsageError

#: Steps of a mode below which a fit would be chance.
LEAST_STEPS = 8
#: Rounds of reweighting; the weights settle well before.
ROUNDS = 30
#: Residuals beyond this many robust standard deviations count less the larger they are (Huber's constant).
HUBER = 1.345

Vector = np.ndarray


class StepRow(NamedTuple):
    """One `batch` row: mode "prefill" or "decode", calls in it, tokens computed, seconds it took. A decode row may cover several steps."""

    mode: str
    requests: int
    tokens: int
    seconds: float


def refit(rows: Iterable[StepRow], start: Linear | None = None) -> Linear:
    """`start` with the coefficients that explain `rows` best: prefill by tokens, decode by calls. Raises UsageError when a mode has too few
    steps. Waits for loads and blocking write backs are part of a measured step and so of the fit.
    """
    kept = [row for row in rows if row.requests > 0 and row.tokens > 0 and row.seconds > 0]
    prefill = [(row.tokens, row.seconds, 1.0) for row in kept if row.mode == "prefill"]
    steps = [(row, row.tokens / row.requests) for row in kept if row.mode == "decode"]
    decode = [(row.requests, row.seconds / n, n) for row, n in steps]
    for mode, points in (("prefill", prefill), ("decode", decode)):
        if len(points) < LEAST_STEPS:
            raise UsageError(f"timing: {len(points)} {mode} steps in the log, expected at least {LEAST_STEPS}; record for longer")
    prefill_base, prefill_token = fit_line(*(np.array(column, dtype=float) for column in zip(*prefill, strict=True)))
    decode_base, decode_request = fit_line(*(np.array(column, dtype=float) for column in zip(*decode, strict=True)))
    return replace(
        start or Linear(), prefill_base_s=prefill_base, prefill_token_s=prefill_token, prefill_pair_s=0.0,
        decode_base_s=decode_base, decode_request_s=decode_request, decode_kv_token_s=0.0,
    )


def fit_line(x: Vector, y: Vector, weight: Vector) -> tuple[float, float]:
    """(base, slope), neither negative, of the line through (x, y) by iteratively reweighted least squares with Huber's weights."""
    robust = np.ones_like(y)
    base = slope = 0.0
    for _ in range(ROUNDS):
        base, slope = _weighted_line(x, y, weight * robust)
        residual = np.abs(y - base - slope * x)
        scale = float(np.median(residual)) * 1.4826  # of a normal distribution, the median is this share of the standard deviation
        if scale <= 1e-12:
            break
        robust = np.minimum(1.0, HUBER * scale / np.maximum(residual, 1e-300))
    return base, slope


def _weighted_line(x: Vector, y: Vector, weight: Vector) -> tuple[float, float]:
    total = float(weight.sum())
    x_mean, y_mean = float((weight * x).sum()) / total, float((weight * y).sum()) / total
    spread = float((weight * (x - x_mean) ** 2).sum())
    slope = float((weight * (x - x_mean) * (y - y_mean)).sum()) / spread if spread > 0 else 0.0
    base = y_mean - slope * x_mean
    if slope < 0:
        return y_mean, 0.0
    if base < 0:  # through the origin
        return 0.0, float((weight * x * y).sum()) / float((weight * x * x).sum())
    return base, slope
