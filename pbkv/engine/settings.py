"""What an engine is: sizes, rules and timing. Checked once, here."""

from dataclasses import dataclass, field

from pbkv.engine.pools import check_sizes
from pbkv.engine.tiers import THRESHOLD, WritePolicy
from pbkv.engine.timing import Linear, Timing
from pbkv.errors import UsageError


@dataclass(frozen=True)
class EngineSettings:
    """Sizes in tokens, rounded down to whole pages. `host_tokens` 0 = no host tier. Raises UsageError for what cannot run."""

    page_size: int = 64
    device_tokens: int = 500_000
    host_tokens: int = 0
    write_policy: WritePolicy = "write_through"
    #: Calls that decode at the same time.
    max_running: int = 32
    #: New tokens of one prefill step; a longer prompt takes several.
    chunk_tokens: int = 8192
    #: Share of the link's rate that a transfer keeps while the other direction is busy; 1 = full duplex.
    link_shared: float = 1.0
    timing: Timing = field(default_factory=Linear)
    #: Enters page ids of the event log, nothing else.
    seed: int = 0
    #: SGLang's overlap: a step is chosen before the results of the one before are taken in: what that cached and freed comes too late.
    overlap: bool = False

    def __post_init__(self) -> None:
        check_sizes(self.page_size, self.device_tokens, self.host_tokens)
        if self.write_policy not in THRESHOLD:
            raise UsageError(f"write_policy = {self.write_policy!r}: expected one of {', '.join(THRESHOLD)}")
        if not 1 <= self.max_running <= 65_536:
            raise UsageError(f"max_running = {self.max_running}: expected 1 to 65536 calls")
        if self.chunk_tokens < self.page_size:
            raise UsageError(f"chunk_tokens = {self.chunk_tokens}: expected at least a page ({self.page_size} tokens)")
        if not 0.0 < self.link_shared <= 1.0:
            raise UsageError(f"link_shared = {self.link_shared}: expected a share above 0 and up to 1")
