"""View models: one frozen snapshot per refresh. Tokens, bytes and milliseconds as plain numbers; None = not known (yet)."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Server:
    """The stream shown: one server epoch."""

    name: str
    epoch: int
    rank: int
    engine: str
    model: str
    control_url: str | None
    step: int
    last_event: datetime
    age_s: float


@dataclass(frozen=True)
class Occupancy:
    """Tokens by state in both tiers at one moment (UTC)."""

    t: datetime
    device_free: int
    device_active: int
    device_retired: int
    device_locked: int
    host_free: int
    host_used: int
    host_retired: int
    leaves: int
    running: int
    waiting: int
    workflows: int


@dataclass(frozen=True)
class HitRate:
    """Prompt tokens served from each tier, as fractions of all prompt tokens of the calls that ended in the window."""

    calls: int
    prompt_tokens: int
    device: float | None
    host: float | None
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    unattributed_calls: int


@dataclass(frozen=True)
class HitPoint:
    """Hit rates of the calls that ended in one time bucket starting at t."""

    t: datetime
    calls: int
    device: float
    host: float


@dataclass(frozen=True)
class StepAccuracy:
    """Top-1 accuracy of predictions `horizon` steps ahead whose outcome is known; END counts as one. `end_share` = outcomes being END."""

    horizon: int
    scored: int
    correct: int
    end_share: float

    @property
    def top1(self) -> float | None:
        return self.correct / self.scored if self.scored else None


@dataclass(frozen=True)
class Evictions:
    """Victims by why they were chosen, from which tier, and which tier still holds them."""

    decision: str
    from_tier: str
    to_tier: str
    nodes: int
    tokens: int


@dataclass(frozen=True)
class Prefetches:
    """Prefetches in the window: decisions, outcomes, and skips by reason (result name without `skip_`)."""

    issued: int
    issued_tokens: int
    issued_bytes: int
    completed: int
    used: int
    evicted_unused: int
    late: int
    skipped: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Windows:
    """Idle windows of the host-device link."""

    count: int
    total_ms: float
    p50_ms: float | None
    capacity_bytes: int
    h2d_bytes: int
    d2h_bytes: int


@dataclass(frozen=True)
class LiveWorkflow:
    """A workflow that has started and not ended or retired. `predicted_next` was predicted at its last step; `predicted_last` at the
    step before, for the call that `agent` then was: `hit` says whether it was right (None: no prediction). END is shown as "END"."""

    workflow: str
    step: int
    agent: str
    predicted_last: str | None
    hit: bool | None
    predicted_next: str | None
    p_next: float | None
    calls: int
    prompt_tokens: int
    hit_rate: float | None
    idle_s: float


@dataclass(frozen=True)
class KnobChange:
    """One applied change, newest first in lists."""

    t: datetime
    version: int
    step: int
    name: str
    old: str
    new: str
    actor: str
    source: str
    reason: str


@dataclass(frozen=True)
class Loss:
    """Messages known to be missing; shown beside the numbers they touch."""

    gaps: int
    messages: int


@dataclass(frozen=True)
class Overview:
    """Everything the first screen shows, for the `window_s` seconds before `now` (live: the wall clock; file: its last event).

    `status`: "live" (events within 5 s), "stale" (none for 5 s), "empty" (no stream yet), "recorded" (a file).
    """

    source: str
    status: str
    now: datetime
    window_s: float
    server: Server | None
    servers: tuple[Server, ...]
    occupancy: Occupancy | None
    occupancy_series: tuple[Occupancy, ...]
    hit_rate: HitRate
    hit_series: tuple[HitPoint, ...]
    accuracy: tuple[StepAccuracy, ...]
    evictions: tuple[Evictions, ...]
    prefetches: Prefetches
    windows: Windows
    workflows: tuple[LiveWorkflow, ...]
    knob_changes: tuple[KnobChange, ...]
    loss: Loss
