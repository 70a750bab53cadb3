"""A token workload, generated or read from a trace, as a recording without times of its own."""

import math
from itertools import islice

from pbkv.engine.pages import PageNamer
from pbkv.engine.settings import EngineSettings
from pbkv.whatif.recording import NOWHERE, RecordedCall, RecordedWorkflow, Recording
from pbkv.workloads.tokens import Segment, TokenWorkflow, TokenWorkload


def recording_of(
    workload: TokenWorkload, engine: EngineSettings, *, workflows: int | None = None, concurrency: int = 32, seed: int = 0,
) -> Recording:
    """The first `workflows` of a workload, all for None, which only a finite one may be asked for. An open loop keeps its start times;
    others run `concurrency` at a time.
    """
    namer = PageNamer(engine.page_size)
    supply = (workflow for workflow in workload.workflows(seed) if workflow.calls)
    taken = list(islice(supply, workflows))
    recorded = tuple(_recorded(workflow, namer) for workflow in taken)
    is_open = any(workflow.start_s is not None for workflow in taken)
    return Recording(workload.name, recorded, engine, concurrency=None if is_open else concurrency)


def _recorded(workflow: TokenWorkflow, namer: PageNamer) -> RecordedWorkflow:
    calls: list[RecordedCall] = []
    for n, call in enumerate(workflow.calls):
        output = max(1, call.output.tokens)
        prompt, pages, more = namer.call(call.prompt, Segment(call.output.key, output - 1))
        after = n - 1 if n else NOWHERE
        calls.append(RecordedCall(call.agent, pages, prompt, output, more, call.final, 0, after, call.delay_s))
    return RecordedWorkflow(workflow.name, tuple(calls), workflow.start_s or 0.0, workflow.attributed, math.nan)
