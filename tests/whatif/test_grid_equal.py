"""What a grid takes for the same is the same: every call, time and byte, by replaying both."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pbkv.knobs import HOST_ORDERS, POLICIES, PREFETCH_MODES
from pbkv.whatif.grid import plain, relevant
from pbkv.whatif.outcome import Outcome
from pbkv.whatif.recording import Recording
from pbkv.whatif.replay import replay
from pbkv.whatif.setting import Setting
from tests.whatif.small import small

BARE = small(20)
#: With a budget that lets prefetch load something.
BUDGET = 1 << 30
_TIERED = small(20, device_tokens=50_048, host_tokens=60_032)
TIERED = replace(_TIERED, knobs={**_TIERED.knobs, "prefetch_budget": BUDGET})


@cache
def outcome(tiered: bool, setting: Setting) -> Outcome:
    return replay(TIERED if tiered else BARE, setting)


def same(a: Outcome, b: Outcome) -> bool:
    return np.array_equal(a.calls, b.calls) and all(np.array_equal(a.figures[n], b.figures[n], equal_nan=True) for n in a.figures)


def differ(tiered: bool, base: dict[str, Any], field: str, *values: Any) -> bool:
    first, *others = (outcome(tiered, Setting(**{**base, field: value})) for value in values)
    return not all(same(first, other) for other in others)


def reads(recording: Recording, base: dict[str, Any], field: str, value: Any) -> bool:
    return getattr(relevant(Setting(**{**base, field: value}), recording), field) is not None


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("prefetch", PREFETCH_MODES)
@pytest.mark.parametrize(("field", "values"), [
    ("gamma", (0.8, 0.0, 0.3, 1.0)), ("k", (3, 1, 8)), ("host_order", HOST_ORDERS), ("prefetch_budget", (BUDGET, 0, 1 << 20)),
    ("prefetch", ("off", "conservative", "aggressive")), ("predictor", ("markov", "uniform")),
])
def test_what_is_left_out_makes_no_difference(policy: str, prefetch: str, field: str, values: tuple[Any, ...]) -> None:
    base = {"policy": policy, "prefetch": prefetch}
    for tiered, recording in ((False, BARE), (True, TIERED)):
        if not reads(recording, base, field, values[0]):
            assert not differ(tiered, base, field, *values), (tiered, field)


@pytest.mark.parametrize("policy", ["he"])
def test_gamma_is_nothing_at_one_step(policy: str) -> None:
    base = {"policy": policy, "k": 1}
    for tiered, recording in ((False, BARE), (True, TIERED)):
        assert not reads(recording, base, "gamma", 0.3)
        assert not differ(tiered, base, "gamma", 0.8, 0.0, 0.3, 1.0)


@pytest.mark.parametrize(("base", "field", "values"), [
    ({"policy": "he"}, "gamma", (0.0, 1.0)),
    ({"policy": "he"}, "k", (1, 8)),
    ({"policy": "first_use"}, "gamma", (0.0, 1.0)),
    ({"policy": "first_use", "k": 1}, "gamma", (0.0, 1.0)),
    ({"policy": "first_use"}, "k", (1, 8)),
    ({"policy": "he"}, "host_order", HOST_ORDERS),
    ({"policy": "he"}, "prefetch", PREFETCH_MODES),
    ({"policy": "lru"}, "prefetch", ("off", "conservative")),
    ({"policy": "he"}, "prefetch_budget", (0, BUDGET)),
    ({"policy": "kvflow_all"}, "host_order", HOST_ORDERS),
    ({"policy": "he"}, "predictor", ("uniform", "markov")),
    ({"policy": "lae"}, "predictor", ("uniform", "markov")),
])
def test_what_is_kept_does(base: dict[str, Any], field: str, values: tuple[Any, ...]) -> None:
    """Were everything left out, the tests above would hold as well."""
    assert all(reads(TIERED, base, field, value) for value in values)
    assert differ(True, base, field, *values)
    assert outcome(True, Setting(**{**base, field: values[-1]})).figures["prefetches"] > 0


SETTINGS = st.builds(
    Setting, policy=st.sampled_from([None, *POLICIES]), gamma=st.sampled_from([None, 0.8, 0.2]), k=st.sampled_from([None, 1, 3]),
    prefetch_budget=st.sampled_from([None, 0, BUDGET]), prefetch=st.sampled_from([None, *PREFETCH_MODES]),
    host_order=st.sampled_from([None, *HOST_ORDERS]), device_tokens=st.sampled_from([None, 60_032, 60_090, 80_000]),
    host_tokens=st.sampled_from([None, 0, 60_032, 60_040]), concurrency=st.sampled_from([None, 12, 6]),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.booleans(), SETTINGS)
def test_what_is_replayed_stands_for_what_was_asked(tiered: bool, asked: Setting) -> None:
    recording = TIERED if tiered else BARE
    for other in (relevant(asked, recording), plain(asked, recording)):
        assert same(outcome(tiered, asked), outcome(tiered, other)), other
        assert plain(other, recording) == plain(asked, recording)


def test_as_recorded_in_other_words() -> None:
    knobs = {**BARE.knobs, "prefetch": "off"}
    recording = replace(BARE, knobs=knobs)
    asked = Setting(policy="he", gamma=0.8, k=3, device_tokens=60_040, concurrency=12, prefetch_budget=5, predictor="markov")
    assert plain(asked, recording) == Setting()


def test_predictions_nobody_reads_are_not_made() -> None:
    assert plain(Setting(policy="lru"), BARE) == Setting(policy="lru", prefetch="off")
    assert plain(Setting(policy="lru", prefetch="aggressive"), TIERED) == Setting(policy="lru", prefetch="aggressive")
