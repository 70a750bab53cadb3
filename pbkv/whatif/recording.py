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
#: As `close_after`: the workflow's last call.
LAST = -2


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
    #: The client gave up, as long after the arrival as `ended` is after `arrived`.
    aborted: bool = False
    #: Position by order of arrival at the server, from 1; 0 = not known. Decides between calls that came at the same time.
    place: int = 0


class RecordedWorkflow(NamedTuple):
    """Calls in order of arrival. `start_s`: its start on the recording's clock. `closed_s`: seconds from the end of the call at position
    `close_after` (NOWHERE: from its start) to its explicit close, which was at `closed_at`; NaN = it was not closed, or not known.
    """

    name: str
    calls: tuple[RecordedCall, ...]
    start_s: float = 0.0
    attributed: bool = True
    closed_s: float = math.nan
    close_after: int = LAST
    closed_at: float = math.nan


class RecordedPrediction(NamedTuple):
    """`ends` and `visits` of a prediction, agents by name."""

    ends: tuple[float, ...]
    visits: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class KnobChange:
    """`name` was set to `value` at `at_s` of the recording's clock, after the arrival of the call at `place`, 0 = before all."""

    at_s: float
    name: str
    value: Value
    place: int = 0


class WarmNode(NamedTuple):
    """A node of the cache at the start. `pages`: its own ids, below those of the node at position `parent` of the list (NOWHERE = root),
    which comes before it. `last_access` orders them. `retired`: only ended workflows touched it; `anonymous`: calls without a workflow did.
    """

    parent: int
    pages: tuple[int, ...]
    on_device: bool
    on_host: bool
    last_access: int
    retired: bool = False
    anonymous: bool = False
    hits: int = 0


@dataclass(frozen=True)
class Recording:
    """Workflows in order of `start_s`. The clock begins at `began_s`.

    What arrives before `measured_from_s` warms the cache up and is in no figure; what arrives after `measured_to_s` is not either: it ran
    beside calls that the recording does not have. `history`: agents of workflows that ended before, in order,
    from which a predictor learns. `before`: workflows that were under way, with the calls they had made; `warm_nodes` hold what is left of
    those.
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
    began_s: float = 0.0
    measured_from_s: float = -math.inf
    measured_to_s: float = math.inf
    history: tuple[tuple[str, ...], ...] = ()
    before: tuple[RecordedWorkflow, ...] = ()
    #: Calls whose pages the source does not know.
    unknown_calls: int = 0
    #: What was predicted, by workflow and number of its calls then (from 1): per horizon, P(END) and the likeliest agents, as in
    #: pbkv.predictor.base.Prediction. The second, where there is one, was made at the call's end.
    predictions: Mapping[tuple[str, int], tuple["RecordedPrediction", ...]] = field(
        default_factory=dict[tuple[str, int], tuple["RecordedPrediction", ...]], repr=False,
    )

    @property
    def timed(self) -> bool:
        """Whether the source had times of its own."""
        return any(not math.isnan(call.arrived) for workflow in self.workflows[:1] for call in workflow.calls)

    @property
    def calls(self) -> int:
        """Calls in all."""
        return sum(len(workflow.calls) for workflow in self.workflows)

    @property
    def page_refs(self) -> int:
        """References to pages by the prompts of all calls."""
        return sum(len(call.pages) for workflow in self.workflows for call in workflow.calls)
