"""A setting to ask about: what differs from the recorded one. Nothing given = as recorded."""

from dataclasses import dataclass, fields, replace

from pbkv.engine.settings import EngineSettings
from pbkv.knobs import KnobSet, Value, parse_changes
from pbkv.whatif.recording import Recording

#: Fields that are knobs of the same name.
KNOB_FIELDS = ("policy", "gamma", "k", "prefetch_budget", "prefetch", "host_order")


@dataclass(frozen=True)
class Setting:
    """None = as recorded. Pool sizes in tokens; `concurrency` = so many workflows at a time instead of starts as recorded; `predictor`: a
    name of pbkv.whatif.predictors.
    """

    policy: str | None = None
    gamma: float | None = None
    k: int | None = None
    prefetch_budget: int | None = None
    prefetch: str | None = None
    host_order: str | None = None
    device_tokens: int | None = None
    host_tokens: int | None = None
    concurrency: int | None = None
    predictor: str | None = None

    @property
    def given(self) -> dict[str, Value]:
        """What differs, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @property
    def label(self) -> str:
        """For tables and keys, e.g. "policy=lru gamma=0.8"; "as recorded" when nothing is given."""
        return " ".join(f"{name}={value}" for name, value in self.given.items()) or "as recorded"

    def knobs_on(self, recording: Recording) -> KnobSet:
        """The knobs a replay starts with. Raises UsageError for values out of bounds."""
        changes = {name: value for name, value in self.given.items() if name in KNOB_FIELDS}
        return KnobSet({**recording.knobs, **(parse_changes(changes) if changes else {})})

    def engine_on(self, recording: Recording) -> EngineSettings:
        """The engine a replay runs on. Raises UsageError for sizes that cannot be."""
        engine = recording.engine
        device = engine.device_tokens if self.device_tokens is None else self.device_tokens
        host = engine.host_tokens if self.host_tokens is None else self.host_tokens
        return replace(engine, device_tokens=device, host_tokens=host)
