"""Overviews made by hand: a full one, an empty one, and variations."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from collector.views.models import (
    Evictions,
    HitPoint,
    HitRate,
    KnobChange,
    LiveWorkflow,
    Loss,
    Occupancy,
    Overview,
    Prefetches,
    Server,
    StepAccuracy,
    Windows,
)
from pbkv.whatif.front import WhatIf, what_if
from tests.support.forecasts import refuse

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def sample(seconds_ago: float, retired: int = 4000) -> Occupancy:
    """60k device and 120k host tokens."""
    t = NOW - timedelta(seconds=seconds_ago)
    return Occupancy(t, 10_000, 30_000, retired, 20_000 - retired, 50_000, 40_000, 30_000, 120, 7, 2, 12)


def workflow(n: int, hit: bool | None = True) -> LiveWorkflow:
    predicted = None if hit is None else "coder" if hit else "tester"
    return LiveWorkflow(f"wf-{n:05d}", 3, "coder", predicted, hit, "critic", 0.78, 4, 12_800, 0.72, 1.5)


def change(version: int, seconds_ago: float, name: str = "gamma", old: str = "0.8", new: str = "0.6", actor: str = "alice") -> KnobChange:
    return KnobChange(NOW - timedelta(seconds=seconds_ago), version, 1000 * version, name, old, new, actor, "manual", "try another decay")


def full(**changes: Any) -> Overview:
    """A live overview in which every panel has something to show."""
    server = Server("gpu-7", 5, 0, "sglang 0.5.23", "llama-8b", "http://127.0.0.1:1", 12_345, NOW, 0.4)
    overview = Overview(
        source="grpc://127.0.0.1:1",
        status="live",
        now=NOW,
        window_s=60.0,
        server=server,
        servers=(server,),
        occupancy=sample(0),
        occupancy_series=tuple(sample(60 - i, 100 * i) for i in range(60)),
        hit_rate=HitRate(400, 1_200_000, 0.58, 0.13, 35.0, 1250.0, 20),
        hit_series=tuple(HitPoint(NOW - timedelta(seconds=60 - i), 7, 0.5, 0.2) for i in range(60)),
        accuracy=(StepAccuracy(1, 400, 300, 0.1), StepAccuracy(2, 200, 120, 0.2), StepAccuracy(3, 0, 0, 0.0)),
        evictions=(
            Evictions("retired", "device", "host", 10, 4000),
            Evictions("scored", "device", "host", 30, 12_000),
            Evictions("tie", "host", "none", 5, 900),
        ),
        prefetches=Prefetches(145, 30_000, 12 << 30, 140, 63, 70, 4, (("just_evicted", 17), ("busy_link", 14), ("something_new", 2))),
        windows=Windows(459, 4510.0, 9.7, 84 << 30, 12 << 30, 1 << 30),
        workflows=(workflow(1), workflow(2, False), workflow(3, None)),
        knob_changes=(change(3, 10), change(3, 10, "k", "3", "2"), change(2, 5000)),
        loss=Loss(0, 0),
    )
    return replace(overview, **changes)


def desk() -> WhatIf:
    """Nothing to forecast from; nothing is started by it."""
    return what_if("grpc://x", refuse, Path("/nowhere"))


def empty(status: str = "empty") -> Overview:
    """A source without a stream."""
    return Overview(
        source="grpc://127.0.0.1:1",
        status=status,
        now=NOW,
        window_s=60.0,
        server=None,
        servers=(),
        occupancy=None,
        occupancy_series=(),
        hit_rate=HitRate(0, 0, None, None, None, None, 0),
        hit_series=(),
        accuracy=(),
        evictions=(),
        prefetches=Prefetches(0, 0, 0, 0, 0, 0, 0, ()),
        windows=Windows(0, 0.0, None, 0, 0, 0),
        workflows=(),
        knob_changes=(),
        loss=Loss(0, 0),
    )
