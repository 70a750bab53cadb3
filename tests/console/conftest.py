"""A result that was kept before."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pbkv.whatif.forecast import Estimate, Residual
from pbkv.whatif.question import About, Found, Present
from pbkv.whatif.results import Result, Results
from pbkv.whatif.setting import Setting

PRESENT = {"hit": 0.54, "ttft_p95": 1.01, "moved_bytes": 288e9, "hit_device": 0.318, "ttft_p50": 0.222, "evicted_live": 1.6e6}


def estimates(better: float, error: float) -> dict[str, Estimate]:
    """All figures better by a share, give or take another."""
    signs = {"hit": 1, "hit_device": 1}
    changed = {name: now * (1 + signs.get(name, -1) * better) for name, now in PRESENT.items()}
    return {name: Estimate(v, v * (1 - error), v * (1 + error), PRESENT[name]) for name, v in changed.items()}


@pytest.fixture
def kept_result() -> Callable[[Path], str]:
    """Keeps one below a state folder; returns its id."""
    refused = Found(Setting(device_tokens=1), refused="device_tokens = 1: expected more")
    cells = [Found(Setting(policy="lru"), estimates(-0.2, 0.02)), refused]
    cells += [
        Found(Setting(policy="he", gamma=gamma, k=k), estimates(gamma / 20 - k / 300, 0.01)) for gamma in (0.6, 0.8, 1.0) for k in (1, 3, 5)
    ]
    about = About("gpu-7", 397, 600.0, "2026-03-01T12:00:00", 165, {"policy": "he", "gamma": 0.8, "k": 3}, 60_000, 120_000)
    result = Result(
        "grpc://127.0.0.1:5615", "2026-03-01T12:00:07+00:00", {"policy": "lru,he", "gamma": "0.6:1:0.2", "k": "1,3,5"}, 11, about,
        Present(PRESENT, (Residual("hit", 0.54, 0.542),)), tuple(cells), "ttft_p95<1.2s", "moved_bytes",
    )
    return lambda state: Results(state / "whatif" / "results").keep(result)
