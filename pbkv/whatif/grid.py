"""A grid of settings: the product of its axes, without what cannot make a difference."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from pbkv.errors import UsageError
from pbkv.eviction.base import Policy
from pbkv.eviction.catalog import POLICIES
from pbkv.whatif.axes import AXES, MAX_CELLS
from pbkv.whatif.predictors import default_name, predictor_for
from pbkv.whatif.recording import Recording
from pbkv.whatif.setting import KNOB_FIELDS, Setting

#: Host victims in the policy's own order also go by `host_order` "recency" (pbkv.manager), or their own order is that one.
_ONE_HOST_ORDER = ("lru", "lae", "session_lae")


def parse_axes(given: Mapping[str, str], recording: Recording) -> list[Setting]:
    """Settings of the grid with these axes (pbkv.whatif.axes.AXES) in order of the product, the last axis fastest; values that nothing
    reads are left out, and what is then the same is there once. No axis: no setting. Raises UsageError.
    """
    unknown = [name for name in given if name not in AXES]
    if unknown:
        raise UsageError(f"axis {unknown[0]!r}: no such axis; expected one of {', '.join(AXES)}")
    axes = {name: AXES[name].values(text, recording) for name, text in given.items()}
    if not axes:
        return []
    count = prod(len(values) for values in axes.values())
    if count > MAX_CELLS:
        raise UsageError(f"the grid has {count:,} settings: expected at most {MAX_CELLS:,}; give fewer values, or larger steps")
    for name in axes.get("predictor", ()):
        predictor_for(recording, str(name))
    settings: dict[Setting, None] = {}
    for values in product(*axes.values()):
        asked = Setting(**dict(zip(axes, values, strict=True)))  # type: ignore[arg-type]
        asked.knobs_on(recording)
        asked.engine_on(recording)
        settings[relevant(asked, recording)] = None
    return list(settings)


def relevant(setting: Setting, recording: Recording) -> Setting:
    """`setting` without the values that nothing reads in a replay of `recording`: any value of theirs gives the same outcome."""
    idle = _Readers.of(setting, recording).idle()
    return replace(setting, **dict.fromkeys(idle & setting.given.keys()))


def plain(setting: Setting, recording: Recording) -> Setting:
    """The setting that is replayed in its place: the same outcome, one form for all that must be the same, and the cheapest.

    Pools hold whole pages. Prefetch that cannot load anything is off, so that predictions nobody reads are not made.
    """
    idle = _Readers.of(setting, recording).idle()
    same = {name for name, value in setting.given.items() if _as_recorded(name, value, recording)}
    bare = replace(setting, **dict.fromkeys(idle | same))
    off = "prefetch" in idle and (recording.knobs["prefetch"] != "off" or _changes(recording, "prefetch"))
    return replace(bare, prefetch="off") if off else bare


def _as_recorded(name: str, value: object, recording: Recording) -> bool:
    page = recording.engine.page_size
    if name in KNOB_FIELDS:
        return value == recording.knobs[name] and not _changes(recording, name)
    if name in ("device_tokens", "host_tokens"):
        return int(str(value)) // page == getattr(recording.engine, name) // page
    return value == (default_name(recording) if name == "predictor" else recording.concurrency)


def _changes(recording: Recording, name: str) -> set[object]:
    """Values that the knob was set to within the recording."""
    return {change.value for change in recording.changes if change.name == name}


@dataclass(frozen=True)
class _Readers:
    """What may be in force at some time of a replay."""

    policies: frozenset[type[Policy]]
    one_step: bool
    has_host: bool
    prefetches: bool

    @classmethod
    def of(cls, setting: Setting, recording: Recording) -> "_Readers":
        def values(name: str) -> frozenset[object]:
            given = getattr(setting, name)
            return frozenset({given} if given is not None else {recording.knobs[name], *_changes(recording, name)})

        has_host = setting.engine_on(recording).host_tokens > 0
        policies = frozenset(POLICIES[str(name)] for name in values("policy"))
        return cls(policies, not values("k") - {1}, has_host, has_host and bool(values("prefetch") - {"off"}))

    def idle(self) -> set[str]:
        """Fields that nothing reads."""
        scored = [policy for policy in self.policies if policy.discounts]
        read = {
            # Eq. 2 weighs the first step with gamma^0.
            "gamma": any(policy.plan is not Policy.plan or not self.one_step for policy in scored),
            "k": bool(scored),
            "prefetch": self.has_host,
            "prefetch_budget": self.prefetches,
            "host_order": self.has_host and any(policy.name not in _ONE_HOST_ORDER for policy in self.policies),
            "predictor": self.prefetches or any(policy.by_score for policy in self.policies),
        }
        return {name for name, is_read in read.items() if not is_read}
