"""Traces that were recorded without this product, as recordings: calls as they were, at a setting that is made up."""

from pathlib import Path

from pbkv.engine.settings import EngineSettings
from pbkv.engine.timing import Linear, Timing, preset
from pbkv.errors import UsageError
from pbkv.eviction.catalog import POLICIES
from pbkv.whatif.from_workload import recording_of
from pbkv.whatif.recording import Recording
from pbkv.workloads.adapters.detect import load_workload
from pbkv.workloads.layouts import LayoutName

#: References to pages that a recording of a trace may have: 8 bytes each, beside what their pages and calls take.
MAX_PAGE_REFS = 100_000_000
#: Name of the timing without a model.
LINEAR = "linear"


def open_trace(
    path: str | Path, *, device_tokens: int, host_tokens: int = 0, page_size: int = 64, timing: str = LINEAR, concurrency: int = 32,
    workflows: int | None = None, layout: LayoutName = "group", max_calls: int = 0, seed: int = 0,
) -> Recording:
    """Mooncake requests (.jsonl), WEKA sessions or conversations (.json or a folder of them), agent calls (.parquet).

    Pools in tokens. `timing`: "linear" or MODEL@GPU[/TP] (pbkv.engine.timing). Mooncake keeps its start times; of others, in an order that
    `seed` decides, `concurrency` workflows run at a time. `workflows`: only the first so many. `layout` and `max_calls` are for traces that
    tell who spoke but no prompts. Raises UsageError for a trace that cannot be read or is too large, and for figures that cannot be.
    """
    if not 1 <= concurrency <= 1_000_000:
        raise UsageError(f"concurrency = {concurrency}: expected 1 to 1000000 workflows at a time")
    if workflows is not None and workflows < 1:
        raise UsageError(f"workflows = {workflows}: expected at least one, or none given for all")
    engine = EngineSettings(page_size=page_size, device_tokens=device_tokens, host_tokens=host_tokens, timing=timing_of(timing))
    workload = load_workload(path, layout=layout, max_calls=max_calls)
    return recording_of(workload, engine, workflows=workflows, concurrency=concurrency, seed=seed, max_refs=MAX_PAGE_REFS)


def timing_of(name: str) -> Timing:
    """ "linear", or MODEL@GPU with "/" and the number of GPUs behind it if more than one. Raises UsageError."""
    if name == LINEAR:
        return Linear()
    model, _, gpus = name.partition("/")
    if gpus and not (gpus.isascii() and gpus.isdigit()):
        raise UsageError(f"timing = {name!r}: expected a number of GPUs behind \"/\", as in qwen3-14b@h100/2")
    return preset(model, int(gpus or 1))


def names_agents(recording: Recording) -> bool:
    """Some workflow has calls of different agents: without, there is nothing to predict from."""
    return any(
        workflow.attributed and any(call.agent != workflow.calls[0].agent for call in workflow.calls) for workflow in recording.workflows
    )


def needs_agents(policy: str) -> bool:
    """Orders by what is predicted of agents. The others read recency and which workflows have ended."""
    return POLICIES[policy].by_score


def check_policy(recording: Recording, policy: str) -> None:
    """Raises UsageError for a policy that does not exist, or that needs agents where the recording names none."""
    if policy not in POLICIES:
        raise UsageError(f"policy = {policy!r}: expected one of {', '.join(POLICIES)}")
    if needs_agents(policy) and not names_agents(recording):
        free = ", ".join(name for name in POLICIES if not needs_agents(name))
        raise UsageError(f"policy {policy} needs agents, and no workflow of {recording.name} has more than one; choose one of {free}")
