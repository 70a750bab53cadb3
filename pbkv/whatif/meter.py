"""Measures a replay: rows of calls, and what the engine counted, both from the recording's measured part on."""

import math

import numpy as np

from pbkv.engine.engine import Engine
from pbkv.engine.requests import Finished
from pbkv.whatif.outcome import CALL_DTYPE, FIGURES, Outcome, call_figures
from pbkv.whatif.recording import Recording


class Meter:
    """`rows` are all calls that have ended, as CALL_DTYPE has them; only those of the measured part go into figures."""

    def __init__(self, engine: Engine, recording: Recording) -> None:
        self._engine, self._from_s, self._to_s = engine, recording.measured_from_s, recording.measured_to_s
        self._workflows = recording.workflows
        # Without anybody who asks, nobody follows which nodes belong to whom.
        self._follows = engine.follows()
        self.rows: list[tuple[float, ...]] = []
        self._latencies: list[float] = []
        self._warm = self._counters()
        self._began_s = engine.now
        self._begun = not math.isfinite(self._from_s)
        self._end: tuple[dict[str, float], float] | None = None

    def look(self) -> None:
        """Note where the measured part begins and ends, at the first look behind. An event of its own would cut the engine's steps."""
        now = self._engine.clock.now
        if not self._begun and now >= self._from_s:
            self._begun, self._warm, self._began_s = True, self._counters(), now
        if now > self._to_s and self._end is None:
            self._end = self._counters(), now

    def call(self, workflow: int, n: int, ended: Finished, started: float, *, last: bool) -> None:
        """A call has ended; with `last` its workflow has."""
        self.rows.append((
            workflow, n, ended.request.prompt_tokens, ended.device_hit, ended.host_hit, ended.output_tokens, ended.arrived,
            ended.admitted, ended.first_token, ended.ended,
        ))
        start = self._workflows[workflow].start_s
        if last and not (start < self._from_s or start > self._to_s):
            self._latencies.append(ended.ended - started)

    def _counters(self) -> dict[str, float]:
        """Everything that only grows, in the units of FIGURES."""
        engine = self._engine
        counts, copies, page_bytes = engine.manager.counts, engine.copies, engine.copies.bytes_per_page
        demand = engine.scheduler.loaded_pages * page_bytes
        retired = counts["evicted_retired_tokens"] if self._follows else math.nan
        return {
            "evictions": counts["evicted_nodes"], "evicted": counts["evicted_tokens"], "evicted_retired": retired,
            "evicted_live": counts["evicted_tokens"] - retired, "backup_bytes": copies.backup_bytes, "demand_bytes": demand,
            "prefetch_bytes": copies.load_bytes - demand, "moved_bytes": copies.backup_bytes + copies.load_bytes,
            "prefetches": counts["prefetches_issued"],
        }

    def outcome(self, *, complete: bool) -> Outcome:
        """Everything so far."""
        calls = np.array(self.rows, dtype=CALL_DTYPE)
        if math.isfinite(self._from_s) or math.isfinite(self._to_s):
            calls = calls[[not (self._recorded_at(row) < self._from_s or self._recorded_at(row) > self._to_s) for row in self.rows]]
        counters, now = self._end or (self._counters(), self._engine.now)
        seconds = now - self._began_s
        counted = {name: value - self._warm[name] for name, value in counters.items()}
        figures = dict.fromkeys(FIGURES, math.nan) | call_figures(calls) | counted | {
            "latency_mean": float(np.mean(self._latencies)) if self._latencies else math.nan,
            "calls_per_s": len(calls) / seconds if seconds > 0 else math.nan,
        }
        return Outcome(figures, calls, seconds, complete)

    def _recorded_at(self, row: tuple[float, ...]) -> float:
        """A call is measured by when it came when it was recorded: at every setting the same calls."""
        return self._workflows[int(row[0])].calls[int(row[1])].arrived
