"""The knobs an operator may turn while the server runs: names, bounds, units, meaning, and versioned, all-or-nothing changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pbkv.errors import StaleVersion, UsageError

Value = float | int | str


@dataclass(frozen=True)
class Knob:
    """One knob. Numbers have bounds, texts have choices."""

    name: str
    default: Value
    unit: str
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    integer: bool = False

    def parse(self, value: object) -> Value:
        """`value` as this knob's type. Raises UsageError that names the knob, the value and what was expected."""
        if self.choices:
            if isinstance(value, str) and value in self.choices:
                return value
            raise UsageError(f"knob {self.name} = {_show(value)}: expected one of {', '.join(self.choices)}")
        return self._number(value)

    def _number(self, value: object) -> Value:
        if isinstance(value, bool) or not isinstance(value, int | float) or not self._fits(value):
            raise UsageError(f"knob {self.name} = {_show(value)}: expected {self.expected}")
        return int(value) if self.integer else float(value)

    def parse_text(self, text: str) -> Value:
        """A value typed by a person. Raises UsageError like `parse`."""
        if self.choices:
            return self.parse(text)
        try:
            return self.parse(int(text) if self.integer else float(text))
        except ValueError:
            raise UsageError(f"knob {self.name} = {_show(text)}: expected {self.expected}") from None

    def _fits(self, number: float) -> bool:
        assert self.minimum is not None and self.maximum is not None
        return self.minimum <= number <= self.maximum and (not self.integer or number == int(number))

    @property
    def expected(self) -> str:
        """What a value has to be, for messages and help."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        kind = "a whole number" if self.integer else "a number"
        return f"{kind} from {self.minimum:g} to {self.maximum:g}" + (f" ({self.unit})" if self.unit else "")


POLICIES = ("lru", "lae", "session_lae", "kvflow", "kvflow_all", "he", "first_use")
PREFETCH_MODES = ("off", "conservative", "aggressive")
HOST_ORDERS = ("recency", "score")

KNOBS: dict[str, Knob] = {
    k.name: k
    for k in (
        Knob("gamma", 0.8, "", "confidence decay per predicted step in the reuse score (Eq. 2)", 0.0, 1.0),
        Knob("k", 3, "steps", "prediction horizon used by the reuse score; the predictor always predicts 8", 1, 8, integer=True),
        Knob(
            "prefetch_budget", 64 << 20, "bytes per decode step", "most bytes prefetched in one pure-decode step; 0 = off",
            0, 1 << 40, integer=True,
        ),
        Knob(
            "policy", "he", "", "eviction order: lru, lae (retired first), he (the paper's reuse score), first_use (expected first use), "
            "baselines session_lae, kvflow, kvflow_all", choices=POLICIES,
        ),
        Knob(
            "host_order", "recency", "", "host-tier victims: recency (retired first, then least recently used) or the policy's own score",
            choices=HOST_ORDERS,
        ),
        Knob(
            "prefetch", "conservative", "", "prefetch from host memory in pure-decode steps: off, conservative (only into free and dead "
            "room), aggressive (also in place of what is less likely to be read next)", choices=PREFETCH_MODES,
        ),
        Knob("retire_idle_s", 600.0, "s", "a workflow without a call for this long is retired", 1.0, 86_400.0),
        Knob("score_snapshot_s", 5.0, "s", "time between snapshots of all node scores in the event stream", 0.5, 3600.0),
    )
}

#: Steps a predictor always predicts, so that the knob k may move either way at run time.
K_MAX = 8


@dataclass(frozen=True)
class Change:
    """One applied change of one knob, as it goes into the event stream."""

    version: int
    name: str
    old: Value
    new: Value
    actor: str
    source: str
    reason: str


@dataclass
class _Pending:
    """Values to go back to at `deadline` unless the change is confirmed."""

    version: int
    deadline: float
    previous: dict[str, Value]


@dataclass
class KnobSet:
    """The values in force. Every accepted set of changes raises `version` by one; a refused one changes nothing.

    `now` is whatever clock the engine drives expiry with, seconds.
    """

    values: dict[str, Value] = field(default_factory=lambda: {k.name: k.default for k in KNOBS.values()})
    version: int = 1
    step: int = 0
    _pending: _Pending | None = None

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def number(self, name: str) -> float:
        """A numeric knob's value."""
        return float(self.values[name])

    def apply(
        self, changes: Mapping[str, object], *, if_version: int, step: int, actor: str, reason: str = "",
        source: str = "manual", now: float = 0.0, expires_s: float | None = None,
    ) -> list[Change]:
        """Validate everything, then apply everything. Raises StaleVersion or UsageError and leaves all values as they were."""
        if if_version != self.version:
            raise StaleVersion(f"if_version = {if_version}: the knobs are at version {self.version}; read them again and repeat the change")
        parsed = parse_changes(changes)
        if expires_s is not None and not 0 < expires_s <= 86_400:
            raise UsageError(f"expires_s = {expires_s}: expected a number of seconds above 0 and up to 86400")
        applied = self._set(parsed, step, actor, source, reason)
        previous = {c.name: c.old for c in applied}
        if self._pending is not None:
            # An unconfirmed change stays revertible to the state before it, also through a second change on top.
            previous = {**previous, **self._pending.previous}
        if expires_s is not None:
            self._pending = _Pending(self.version, now + expires_s, previous)
        elif self._pending is not None:
            self._pending = _Pending(self.version, self._pending.deadline, previous)
        return applied

    def _set(self, parsed: Mapping[str, Value], step: int, actor: str, source: str, reason: str) -> list[Change]:
        self.version += 1
        self.step = step
        changes = [Change(self.version, n, self.values[n], v, actor, source, reason) for n, v in parsed.items()]
        self.values.update(parsed)
        return changes

    def confirm(self, version: int) -> None:
        """Keep the unconfirmed change of `version`. Raises StaleVersion when there is none."""
        if self._pending is None or self._pending.version != version:
            raise StaleVersion(f"version = {version}: no change of that version waits for confirmation")
        self._pending = None

    def catch_up(self, version: int) -> None:
        """Another replica of the same server is at this version: the next change makes the same version on all."""
        self.version = max(self.version, version)

    def keep(self, names: Iterable[str]) -> None:
        """These knobs are no longer part of the unconfirmed change: nobody takes them back."""
        if self._pending is not None:
            for name in names:
                self._pending.previous.pop(name, None)
            self._pending = self._pending if self._pending.previous else None

    def expire(self, now: float, step: int) -> list[Change]:
        """Take back an unconfirmed change whose time is over; returns what changed."""
        if self._pending is None or now < self._pending.deadline:
            return []
        previous, self._pending = self._pending.previous, None
        return self._set(previous, step, "engine", "expiry", "not confirmed in time")

    @property
    def expires_at(self) -> float | None:
        """Deadline of the unconfirmed change on the engine's clock, or None."""
        return self._pending.deadline if self._pending else None

    def describe(self) -> dict[str, object]:
        """Version, step and, per knob, value, default, bounds, unit and meaning, as served by GET /pbkv/knobs."""
        return {
            "version": self.version,
            "step": self.step,
            "knobs": {
                k.name: {
                    "value": self.values[k.name], "default": k.default, "min": k.minimum, "max": k.maximum,
                    "choices": list(k.choices), "integer": k.integer, "unit": k.unit, "meaning": k.meaning,
                }
                for k in KNOBS.values()
            },
        }


def parse_changes(changes: Mapping[str, object]) -> dict[str, Value]:
    """Knob values for a non-empty mapping of names to values. Raises UsageError for the first bad one."""
    if not changes:
        raise UsageError("changes: expected at least one NAME=VALUE")
    parsed: dict[str, Value] = {}
    for name, value in changes.items():
        knob = KNOBS.get(name)
        if knob is None:
            raise UsageError(f"knob {_show(name)}: no such knob; expected one of {', '.join(KNOBS)}")
        parsed[name] = knob.parse(value)
    return parsed


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
