"""Recorded traffic: which calls came, what they read and wrote, what they waited for, and at which setting they were served.

A recording holds no text and no token ids: equal page ids on equal paths mean equal content.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pbkv.engine.settings import EngineSettings
from pbkv.knobs import KnobSet, Value

NOWHERE = -1


class RecordedCall(NamedTuple):
    """One call of an agent. `pages` are the ids of the prompt's full pages, `output_pages` those of the further full pages that prompt and
    output make together (pbkv.engine.requests.pages_of).

    It arrives `delay_s` after the call at position `after` of its workflow has ended; `after` = NOWHERE: after the workflow's start. Calls
    of one workflow that wait for the same call run beside each other.
    """

    agent: str
    pages: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    output_pages: tuple[int, ...] = ()
    final: bool = False
    max_tokens: int = 0
    after: int = NOWHERE
    delay_s: float = 0.0
    text: object = None
    #: As measured, s of the recording's clock; NaN where the source has no times.
    arrived: float = math.nan
    ended: float = math.nan
    #: The client gave up; the call is replayed up to what it had generated.
    aborted: bool = False


class RecordedWorkflow(NamedTuple):
    """Calls in order of arrival. `start_s`: its start on the recording's clock. `closed_s`: seconds from the end of its last call to its
    explicit close; NaN = it was not closed.
    """

    name: str
    calls: tuple[RecordedCall, ...]
    start_s: float = 0.0
    attributed: bool = True
    closed_s: float = math.nan


@dataclass(frozen=True)
class KnobChange:
    """`name` was set to `value` at `at_s` of the recording's clock."""

    at_s: float
    name: str
    value: Value


@dataclass(frozen=True)
class WarmNode:
    """A node of the cache at the start. `pages`: its own ids, below those of the node at position `parent` of the list (NOWHERE = root),
    which comes before it. `workflow` "" = nobody known; `last_access` orders them.
    """

    parent: int
    pages: tuple[int, ...]
    on_device: bool
    on_host: bool
    last_access: int
    workflow: str = ""
    agent: str = ""


@dataclass(frozen=True)
class Recording:
    """Workflows in order of `start_s`.

    `concurrency`: None = workflows start when they did (open loop); else so many at a time, each next one when another has ended.
    `measured`: figures of pbkv.whatif.outcome that the source itself measured, for the residual; empty for a trace.
    `losses`: what the log lacks, one sentence each, by which fidelity may refuse.
    """

    name: str
    workflows: tuple[RecordedWorkflow, ...]
    engine: EngineSettings = field(default_factory=EngineSettings)
    knobs: Mapping[str, Value] = field(default_factory=lambda: dict(KnobSet().values))
    changes: tuple[KnobChange, ...] = ()
    predictor: str = "markov"
    concurrency: int | None = None
    stagger_s: float = 0.0
    warm_nodes: tuple[WarmNode, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict[str, float])
    losses: tuple[str, ...] = ()

    @property
    def calls(self) -> int:
        """Calls in all."""
        return sum(len(workflow.calls) for workflow in self.workflows)

    @property
    def page_refs(self) -> int:
        """References to pages by the prompts of all calls."""
        return sum(len(call.pages) for workflow in self.workflows for call in workflow.calls)
