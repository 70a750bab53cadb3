"""Figures that the server itself measured, from the rows of its log."""

import math
from collections.abc import Sequence

import numpy as np

from pbkv.engine.settings import EngineSettings
from pbkv.whatif.logcalls import LogCall
from pbkv.whatif.logwindow import Query, Span
from pbkv.whatif.outcome import ttft_figures
from pbkv.whatif.recording import RecordedWorkflow

_EVICTED = """
SELECT count(*) AS nodes, coalesce(sum(tokens), 0)::BIGINT AS tokens, coalesce(sum(tokens) FILTER (decision = 0), 0)::BIGINT AS retired
FROM raw.eviction WHERE src = $src AND seq > $after AND seq <= $upto AND from_tier = 1"""
_PREFETCHED = """
SELECT count(*) AS issued, coalesce(sum(bytes), 0)::BIGINT AS bytes FROM raw.prefetch
WHERE src = $src AND seq > $after AND seq <= $upto AND phase = 0 AND result = 0"""
#: Policies whose victims say whether they were retired.
_TELLS_RETIRED = frozenset({"lae", "session_lae", "he", "first_use", "kvflow_all"})


def measure(
    query: Query, span: Span, calls: Sequence[LogCall], workflows: Sequence[RecordedWorkflow], engine: EngineSettings,
    policies: set[str], from_s: float, to_s: float, began_s: float,
) -> dict[str, float]:
    """By the names of pbkv.whatif.outcome.FIGURES, of what arrived from `from_s` to `to_s`. What the log does not tell is left out.
    `policies`: those in force meanwhile. `span` is that of the counted events.
    """
    counted = [call for call in calls if from_s <= call.arrived_s <= to_s]
    figures = _of_calls(counted) | _of_workflows(workflows, from_s, to_s) | _of_cache(query, span, engine, counted, policies)
    seconds = min(max((call.ended_s for call in calls), default=math.nan), to_s) - max(from_s, began_s)
    figures["calls_per_s"] = len(counted) / seconds if seconds > 0 else math.nan
    return {name: value for name, value in figures.items() if not math.isnan(value)}


def _of_calls(calls: Sequence[LogCall]) -> dict[str, float]:
    prompt = sum(call.prompt_tokens for call in calls)
    if not prompt:
        return {}
    device, host = sum(call.device_hit_tokens for call in calls) / prompt, sum(call.host_hit_tokens for call in calls) / prompt
    ttft = np.array([call.ttft_s for call in calls if call.ttft_s > 0])
    return {"hit_device": device, "hit_host": host, "hit": device + host, **ttft_figures(ttft)}


def _of_workflows(workflows: Sequence[RecordedWorkflow], from_s: float, to_s: float) -> dict[str, float]:
    took = [max(call.ended for call in each.calls) - each.start_s for each in workflows if from_s <= each.start_s <= to_s]
    return {"latency_mean": float(np.mean(took))} if took else {}


def _of_cache(
    query: Query, span: Span, engine: EngineSettings, calls: Sequence[LogCall], policies: set[str],
) -> dict[str, float]:
    which = {"src": span.src, "after": span.after, "upto": span.upto}
    gone, loaded = query(_EVICTED, which).to_pylist()[0], query(_PREFETCHED, which).to_pylist()[0]
    per_token = engine.timing.bytes_per_token
    figures = {"evictions": float(gone["nodes"]), "evicted": float(gone["tokens"])}
    if policies <= _TELLS_RETIRED:
        figures |= {"evicted_retired": float(gone["retired"]), "evicted_live": float(gone["tokens"] - gone["retired"])}
    if engine.host_tokens:
        demand = float(sum(call.host_hit_tokens for call in calls) * per_token)
        figures |= {"prefetches": float(loaded["issued"]), "prefetch_bytes": float(loaded["bytes"]), "demand_bytes": demand}
    return figures
