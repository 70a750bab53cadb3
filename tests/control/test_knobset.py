"""KnobSet: a change is all or nothing, versions only rise, and an unconfirmed change goes back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pbkv.errors import StaleVersion, UsageError
from pbkv.knobs import KNOBS, KnobSet, parse_changes

GOOD = st.fixed_dictionaries({}, optional={
    "gamma": st.floats(0, 1), "k": st.integers(1, 8), "prefetch_budget": st.integers(0, 1 << 40),
    "policy": st.sampled_from(KNOBS["policy"].choices), "retire_idle_s": st.floats(1, 86_400),
}).filter(bool)
BAD_ONE = st.sampled_from([
    {"gamma": 1.5}, {"gamma": -0.1}, {"gamma": float("nan")}, {"gamma": float("inf")}, {"gamma": True}, {"gamma": "0.5"},
    {"k": 0}, {"k": 9}, {"k": 2.5}, {"policy": "fifo"}, {"policy": 3}, {"nope": 1}, {"prefetch_budget": -1},
])


class Knobs(RuleBasedStateMachine):
    """Random changes, refusals, confirmations and expiries against a plain model."""

    @initialize()
    def begin(self) -> None:
        self.set = KnobSet()
        self.model = dict(self.set.values)
        self.confirmed: dict[str, object] | None = None
        self.deadline = 0.0
        self.now = 0.0
        self.seen = self.set.version

    def refused(self, kind: type[Exception], changes: dict[str, object], if_version: int) -> None:
        before = (dict(self.set.values), self.set.version, self.set.expires_at)
        with pytest.raises(kind):
            self.set.apply(changes, if_version=if_version, step=1, actor="t", now=self.now)
        assert (self.set.values, self.set.version, self.set.expires_at) == before

    @rule(changes=GOOD, expires=st.none() | st.floats(0.1, 50))
    def change(self, changes: dict[str, object], expires: float | None) -> None:
        before = dict(self.model)
        applied = self.set.apply(changes, if_version=self.set.version, step=7, actor="t", now=self.now, expires_s=expires)
        self.model.update(parse_changes(changes))
        assert [(c.name, c.old, c.new) for c in applied] == [(n, before[n], self.model[n]) for n in changes]
        if expires is not None:
            self.deadline = self.now + expires
            self.confirmed = self.confirmed or before

    @rule(good=GOOD, bad=BAD_ONE)
    def one_bad_value_refuses_all(self, good: dict[str, object], bad: dict[str, object]) -> None:
        self.refused(UsageError, {**good, **bad}, self.set.version)

    @rule(changes=GOOD, off=st.integers(1, 3))
    def stale(self, changes: dict[str, object], off: int) -> None:
        self.refused(StaleVersion, changes, self.set.version - off)

    @rule()
    def confirm(self) -> None:
        if self.confirmed is None:
            with pytest.raises(StaleVersion):
                self.set.confirm(self.set.version)
        else:
            self.set.confirm(self.set.version)
            self.confirmed = None

    @rule(seconds=st.floats(0, 60))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        version = self.set.version
        changes = self.set.expire(self.now, 9)
        if self.confirmed is not None and self.now >= self.deadline:
            self.model, self.confirmed = self.confirmed, None  # type: ignore[assignment]
            assert self.set.version == version + 1
            assert {c.source for c in changes} == {"expiry"}
        else:
            assert changes == [] and self.set.version == version

    @invariant()
    def values_are_the_models(self) -> None:
        assert self.set.values == self.model

    @invariant()
    def versions_rise(self) -> None:
        assert self.set.version >= self.seen
        self.seen = self.set.version


TestKnobs = Knobs.TestCase
TestKnobs.settings = settings(max_examples=40, stateful_step_count=20, deadline=None, derandomize=True)


@given(BAD_ONE)
def test_a_refusal_names_the_knob_and_what_was_expected(bad: dict[str, object]) -> None:
    with pytest.raises(UsageError) as error:
        parse_changes(bad)
    assert next(iter(bad)) in str(error.value) and "expected" in str(error.value)
    assert "\n" not in str(error.value)


def test_no_change_is_no_change() -> None:
    with pytest.raises(UsageError, match="at least one"):
        KnobSet().apply({}, if_version=1, step=0, actor="t")


@pytest.mark.parametrize("expires", [0.0, -1.0, 86_401.0])
def test_an_expiry_outside_its_bounds_changes_nothing(expires: float) -> None:
    knobs = KnobSet()
    with pytest.raises(UsageError, match="expires_s"):
        knobs.apply({"k": 2}, if_version=1, step=0, actor="t", expires_s=expires)
    assert (knobs["k"], knobs.version) == (3, 1)


@pytest.mark.parametrize("text", ["", "x", "1.5.2", "0x2", "1e999", "nan"])
def test_typed_values_that_are_no_numbers_are_refused(text: str) -> None:
    for name in ("gamma", "k"):
        with pytest.raises(UsageError, match=f"knob {name}"):
            KNOBS[name].parse_text(text)


def test_typed_values_become_the_knobs_type() -> None:
    assert KNOBS["k"].parse_text("4") == 4 and isinstance(KNOBS["k"].parse_text("4"), int)
    assert KNOBS["gamma"].parse_text("1") == 1.0 and isinstance(KNOBS["gamma"].parse_text("1"), float)
    assert KNOBS["policy"].parse_text("lru") == "lru"


def test_every_knob_says_what_it_is_and_its_default_fits() -> None:
    for knob in KNOBS.values():
        assert knob.meaning and knob.expected
        assert knob.parse(knob.default) == knob.default
