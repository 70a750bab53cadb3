"""What a replay found: the figures, and the rows they come from."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

#: What `call_figures` gives.
_OF_CALLS = ("hit_device", "hit_host", "hit", "ttft_mean", "ttft_p50", "ttft_p95", "ttft_p99")

#: One row per call that ended, in order of their ends; `workflow`, `call`: positions in the recording; times in s of its clock.
CALL_DTYPE = np.dtype([
    ("workflow", "<i4"), ("call", "<i4"), ("prompt", "<i8"), ("device_hit", "<i8"), ("host_hit", "<i8"), ("output", "<i8"),
    ("arrived", "<f8"), ("admitted", "<f8"), ("first_token", "<f8"), ("ended", "<f8"),
])


class Figure(NamedTuple):
    """A number that is forecast. `better`: +1 = more is better, -1 = less is better."""

    name: str
    unit: str
    better: int
    meaning: str


FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure("hit_device", "share", 1, "prompt tokens found on the device"),
        Figure("hit_host", "share", 1, "prompt tokens loaded back from host memory"),
        Figure("hit", "share", 1, "prompt tokens found in either tier"),
        Figure("ttft_mean", "s", -1, "arrival to first token, mean"),
        Figure("ttft_p50", "s", -1, "arrival to first token, median"),
        Figure("ttft_p95", "s", -1, "arrival to first token, 95th percentile"),
        Figure("ttft_p99", "s", -1, "arrival to first token, 99th percentile"),
        Figure("latency_mean", "s", -1, "start of a workflow to the end of its last call, mean over workflows that ended"),
        Figure("calls_per_s", "1/s", 1, "calls ended per second"),
        Figure("evictions", "nodes", 0, "nodes evicted from the device"),
        Figure("evicted", "tokens", 0, "tokens evicted from the device"),
        Figure("evicted_retired", "tokens", 1, "evicted from the device after every workflow that touched them had ended"),
        Figure("evicted_live", "tokens", -1, "evicted from the device although a live workflow had touched them"),
        Figure("backup_bytes", "bytes", -1, "copied from the device to host memory"),
        Figure("demand_bytes", "bytes", -1, "loaded back from host memory for a call"),
        Figure("prefetch_bytes", "bytes", -1, "loaded back from host memory ahead of calls"),
        Figure("moved_bytes", "bytes", -1, "moved over the link in all"),
        Figure("prefetches", "", 0, "prefetches issued"),
    )
}


@dataclass(frozen=True)
class Outcome:
    """`figures` by the names of FIGURES; `nan` where nothing of the kind happened. `complete` False: the replay was stopped."""

    figures: dict[str, float]
    calls: np.ndarray = field(repr=False)
    engine_s: float = 0.0
    complete: bool = True


def call_figures(calls: np.ndarray) -> dict[str, float]:
    """The figures that rows of CALL_DTYPE alone give."""
    prompt = float(calls["prompt"].sum())
    if not len(calls) or not prompt:
        return dict.fromkeys(_OF_CALLS, math.nan)
    ttft = (calls["first_token"] - calls["arrived"])[calls["first_token"] >= calls["arrived"]]
    device, host = float(calls["device_hit"].sum()) / prompt, float(calls["host_hit"].sum()) / prompt
    return {"hit_device": device, "hit_host": host, "hit": device + host, **ttft_figures(ttft)}


def ttft_figures(ttft: np.ndarray) -> dict[str, float]:
    """Mean and percentiles of times to first token, s; nan without any."""
    if not len(ttft):
        return dict.fromkeys(("ttft_mean", "ttft_p50", "ttft_p95", "ttft_p99"), math.nan)
    p50, p95, p99 = (float(value) for value in np.percentile(ttft, (50, 95, 99)))
    return {"ttft_mean": float(ttft.mean()), "ttft_p50": p50, "ttft_p95": p95, "ttft_p99": p99}
