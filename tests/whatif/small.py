"""Recordings that are replayed in a fraction of a second."""

from typing import Any

from pbkv.engine.settings import EngineSettings
from pbkv.whatif.from_workload import recording_of
from pbkv.whatif.recording import Recording
from pbkv.workloads.hover_like import HoverLike


def small(workflows: int = 24, *, device_tokens: int = 60_032, host_tokens: int = 0, concurrency: int = 12, **engine: Any) -> Recording:
    """HoVer-like workflows in a pool that holds about half of what they keep alive."""
    settings = EngineSettings(device_tokens=device_tokens, host_tokens=host_tokens, **{"max_running": 8, **engine})
    return recording_of(HoverLike(delay_scale=8.0), settings, workflows=workflows, concurrency=concurrency)
