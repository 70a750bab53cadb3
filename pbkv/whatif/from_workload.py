"""A token workload, generated or read from a trace, as a recording without times of its own."""

import math
from collections.abc import Iterable, Iterator
from itertools import islice

from pbkv.engine.pages import PageNamer
from pbkv.engine.settings import EngineSettings
from pbkv.errors import UsageError
from pbkv.whatif.recording import NOWHERE, RecordedCall, RecordedWorkflow, Recording
from pbkv.workloads.tokens import Segment, TokenWorkflow, TokenWorkload


def recording_of(
    workload: TokenWorkload, engine: EngineSettings, *, workflows: int | None = None, concurrency: int = 32, seed: int = 0,
    max_refs: int | None = None,
) -> Recording:
    """The first `workflows` of a workload, all for None, which only a finite one may be asked for. An open loop keeps its start times;
    others run `concurrency` at a time. Raises UsageError for a workload without calls, and for more than `max_refs` references to pages.
    """
    taken = islice((workflow for workflow in workload.workflows(seed) if workflow.calls), workflows)
    recorded, is_open = list[RecordedWorkflow](), False
    for workflow, made in _recorded(taken, PageNamer(engine.page_size)):
        is_open = is_open or workflow.start_s is not None
        recorded.append(made)
        if max_refs is not None:
            max_refs -= sum(len(call.pages) for call in made.calls)
            if max_refs < 0:
                raise UsageError(f"{workload.name}: too many pages at page_size = {engine.page_size}; take larger pages or fewer workflows")
    if not recorded:
        raise UsageError(f"{workload.name}: no workflow has a call; choose another trace")
    return Recording(workload.name, tuple(recorded), engine, concurrency=None if is_open else concurrency)


def _recorded(workflows: Iterable[TokenWorkflow], namer: PageNamer) -> Iterator[tuple[TokenWorkflow, RecordedWorkflow]]:
    """Each with what is recorded of it; a page has the same id wherever it comes."""
    for workflow in workflows:
        calls: list[RecordedCall] = []
        for n, call in enumerate(workflow.calls):
            output = max(1, call.output.tokens)
            prompt, pages, more = namer.call(call.prompt, Segment(call.output.key, output - 1))
            calls.append(RecordedCall(call.agent, pages, prompt, output, more, call.final, 0, n - 1 if n else NOWHERE, call.delay_s))
        yield workflow, RecordedWorkflow(workflow.name, tuple(calls), workflow.start_s or 0.0, workflow.attributed, math.nan)
