"""PBKV's own counters on SGLang's /metrics: every process writes its numbers into files that the web server puts together."""

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pbkv.sglang.ranks import is_leader

if TYPE_CHECKING:
    from pbkv.sglang.runtime import Runtime

log = logging.getLogger("pbkv")
#: Seconds between two updates.
PERIOD_S = 1.0
#: Counters: name, label, meaning. `total` gives their values by label.
COUNTERS: tuple[tuple[str, str, str], ...] = (
    ("pbkv:calls", "", "Calls that reached the cache."),
    ("pbkv:unattributed", "", "Calls without workflow and agent."),
    ("pbkv:malformed", "", "Calls whose identity was malformed."),
    ("pbkv:retired_workflows", "", "Workflows that ended."),
    ("pbkv:evicted_tokens", "reason", "Tokens evicted from the device: retired = no live workflow touched them, live = one had."),
    ("pbkv:prefetches_issued", "", "Prefetches begun."),
    ("pbkv:prefetches", "outcome", "Prefetches by what became of them."),
    ("pbkv:predictions", "", "Predictions made."),
    ("pbkv:prediction_fallbacks", "reason", "Predictions that the online chain made in place of the trained predictor."),
    ("pbkv:faults", "", "Failures after which SGLang's LRU went on alone."),
)
GAUGES = (
    ("pbkv:live_workflows", "Live workflows."),
    ("pbkv:knob_version", "Version of the knobs in force."),
    ("pbkv:armed", "1 while PBKV steers the cache, 0 after a fault."),
)


class Meters:
    """Fed from counts that are kept anyway. `labels` go with every series."""

    def __init__(self, runtime: "Runtime", labels: Mapping[str, str]) -> None:
        # Where the numbers go is decided when the library is first imported, by a variable that SGLang sets at its start.
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self._runtime, self._labels = runtime, tuple(labels.values())
        # One of its own: files are read by name, and a process may have several caches.
        self.registry = CollectorRegistry()
        names = tuple(labels)
        self._counters = {
            name: Counter(name, meaning, (*names, label) if label else names, registry=self.registry) for name, label, meaning in COUNTERS
        }
        self._gauges = {
            name: Gauge(name, meaning, names, registry=self.registry, multiprocess_mode="livesum") for name, meaning in GAUGES
        }
        self._told: dict[tuple[str, str], int] = {}
        self._next = 0.0

    def step(self) -> None:
        """Once per scheduler step; most do nothing."""
        if (now := time.monotonic()) < self._next:
            return
        self._next = now + PERIOD_S
        try:
            self.update()
        except Exception:
            # One rank has meters, and others go on alike: what fails here must end nothing but the numbers.
            self._next = float("inf")
            log.exception("pbkv shows no metrics any more in this process; the cache is not affected")

    def update(self) -> None:
        """Bring every number up to date. A count that began anew goes on from where it was."""
        for (name, label), value in totals(self._runtime).items():
            change = value - self._told.get((name, label), 0)
            self._told[name, label] = value
            counter = self._counters[name].labels(*self._labels, *([label] if label else []))
            if change > 0:
                counter.inc(change)
        runtime = self._runtime
        values = (len(runtime.state.live), runtime.knobs.version, int(not runtime.guard.fault))
        for gauge, value in zip(self._gauges.values(), values, strict=True):
            gauge.labels(*self._labels).set(value)


def totals(runtime: "Runtime") -> dict[tuple[str, str], int]:
    """Value of every counter by name and label."""
    counts = runtime.counts
    plain = ("calls", "unattributed", "malformed", "retired_workflows", "prefetches_issued", "predictions")
    retired = counts["evicted_retired_tokens"]
    fallbacks = runtime.forecasts.asked.counts if runtime.forecasts else {}
    return {
        **{(f"pbkv:{name}", ""): counts[name] for name in plain},
        ("pbkv:evicted_tokens", "retired"): retired, ("pbkv:evicted_tokens", "live"): counts["evicted_tokens"] - retired,
        **{("pbkv:prefetches", outcome): counts[f"prefetches_{outcome}"] for outcome in ("used", "evicted_unused", "late")},
        **{("pbkv:prediction_fallbacks", reason): fallbacks.get(reason, 0) for reason in ("budget", "error")},
        ("pbkv:faults", ""): runtime.guard.faults,
    }


def meters_of(runtime: "Runtime", ctx: Any) -> Meters | None:
    """Of the process that stands for its group, where SGLang shows metrics."""
    args = ctx.server_args
    if not args.enable_metrics or not is_leader(ctx):
        return None
    return Meters(runtime, {"model_name": str(args.served_model_name or args.model_path)})
