"""The workloads that can be asked for by name."""

from collections.abc import Callable

from pbkv.errors import UsageError
from pbkv.workloads.base import Workload
from pbkv.workloads.financebench import FinanceBench
from pbkv.workloads.hover import Hover
from pbkv.workloads.swebench import SweBench

WORKLOADS: dict[str, Callable[[int, int, float], Workload]] = {"hover": Hover, "swebench": SweBench, "financebench": FinanceBench}


def make_workload(name: str, *, seed: int = 0, limit: int = 2048, pace: float = 1.0) -> Workload:
    """The workload `name`, with prompt and reply within `limit` bytes. Raises UsageError for an unknown name."""
    if name not in WORKLOADS:
        raise UsageError(f"workload {name!r}: no such workload; expected one of {', '.join(WORKLOADS)}")
    return WORKLOADS[name](seed, limit, pace)
