"""Knobs as the engine describes them: reading, showing, typing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.knobs.spec import KnobSpec, read_specs
from dashboards.knobs.staging import describe, form_value, others, staged, values
from pbkv.errors import UsageError
from pbkv.knobs import KNOBS, KnobSet

SPECS = read_specs(json.loads(json.dumps(KnobSet().describe())))
BY_NAME = {k.name: k for k in SPECS}


def test_all_knobs_of_an_engine_are_read():
    assert [k.name for k in SPECS] == list(KNOBS)
    gamma = BY_NAME["gamma"]
    assert (gamma.value, gamma.minimum, gamma.maximum, gamma.bounds) == (0.8, 0.0, 1.0, "0 to 1")
    assert BY_NAME["policy"].bounds == " | ".join(KNOBS["policy"].choices)


@pytest.mark.parametrize("answer", [{}, {"knobs": {"a": {"value": 1}}}, {"knobs": {"a": 3}}])
def test_what_is_not_a_description_is_refused(answer: dict[str, Any]):
    with pytest.raises((KeyError, TypeError)):
        read_specs(answer)


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("gamma", 0.6, 0.6),
        ("gamma", "0.6", 0.6),
        ("gamma", 1, 1.0),
        ("k", 2, 2),
        ("k", "2", 2),
        ("policy", "lru", "lru"),
        ("prefetch_budget", "64 MiB", 64 << 20),
        ("prefetch_budget", "64MiB", 64 << 20),
        ("prefetch_budget", " 1.5 gib ", 3 << 29),
        ("prefetch_budget", "64 MB", 64_000_000),
        ("prefetch_budget", "0", 0),
        ("prefetch_budget", 12, 12),
        ("prefetch_budget", "2k", 2048),
    ],
)
def test_typed_values(name: str, typed: object, value: object):
    parsed = BY_NAME[name].parse(typed)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("gamma", 1.5),
        ("gamma", -0.1),
        ("gamma", ""),
        ("gamma", None),
        ("gamma", "x"),
        ("gamma", True),
        ("gamma", "nan"),
        ("gamma", "inf"),
        ("k", 0),
        ("k", 9),
        ("k", 2.5),
        ("policy", "fifo"),
        ("policy", None),
        ("prefetch_budget", "-1"),
        ("prefetch_budget", "2 TiB"),
        ("prefetch_budget", "64 XiB"),
        ("prefetch_budget", "0.3 B"),
        ("gamma", {"a": 1}),
    ],
)
def test_bad_values_say_what_is_expected(name: str, typed: object):
    with pytest.raises(UsageError, match="expected"):
        BY_NAME[name].parse(typed)


def test_the_sentence_names_the_bounds():
    with pytest.raises(UsageError, match="a whole number from 1 to 8"):
        BY_NAME["k"].parse(9)
    with pytest.raises(UsageError, match="a size such as 64 MiB, from 0 B to 1 TiB"):
        BY_NAME["prefetch_budget"].parse("big")


@given(st.integers(0, 1 << 40))
def test_a_size_survives_being_shown_and_typed(value: int):
    knob = BY_NAME["prefetch_budget"]
    assert knob.parse(form_value(knob, value)) == value


@given(st.floats(0, 1))
def test_the_form_accepts_exactly_what_the_engine_accepts(value: float):
    assert BY_NAME["gamma"].parse(value) == KNOBS["gamma"].parse(value)


@given(st.one_of(st.floats(), st.integers(), st.text(max_size=12), st.none(), st.booleans()), st.sampled_from(sorted(BY_NAME)))
def test_nothing_but_a_usage_error_comes_of_anything_typed(typed: object, name: str):
    try:
        value = BY_NAME[name].parse(typed)
    except UsageError:
        return
    assert KNOBS[name].parse(value) == value


def test_staging_finds_changes_and_errors():
    loaded = values(SPECS)
    page = {name: form_value(BY_NAME[name], v) for name, v in loaded.items()}
    assert not staged(SPECS, loaded, page).any
    result = staged(SPECS, loaded, {**page, "gamma": 0.6, "k": 12, "prefetch_budget": "32 MiB", "unknown": 3})
    assert result.changes == {"gamma": 0.6, "prefetch_budget": 32 << 20}
    assert list(result.errors) == ["k"]
    assert not staged(SPECS, {}, page).any


def test_describe_shows_old_and_new():
    loaded = values(SPECS)
    assert describe(SPECS, loaded, {"gamma": 0.6, "prefetch_budget": 0}) == "gamma 0.8 → 0.6, prefetch_budget 64 MiB → 0 B"


def test_others_names_who_changed_what():
    history = [
        {"version": 2, "step": 10, "name": "k", "old": 3, "new": 2, "actor": "me", "reason": ""},
        {"version": 3, "step": 1200, "name": "gamma", "old": 0.8, "new": 0.3, "actor": "bob", "reason": "test"},
    ]
    assert others(history, 2) == "bob set gamma 0.8 → 0.3 (version 3, step 1,200, “test”)"
    assert others([], 2) == "the engine does not say who"


def test_a_knob_this_version_does_not_know_is_editable():
    new = KnobSpec("depth", 2, 2, 0, 9, (), True, "layers", "something newer")
    assert new.parse("5") == 5
    assert new.bounds == "0 to 9"
