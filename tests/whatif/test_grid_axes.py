"""Axes as they are typed, the product they make, and what is refused."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.knobs import POLICIES
from pbkv.whatif.axes import AXES, MAX_CELLS, link_budget
from pbkv.whatif.grid import parse_axes
from pbkv.whatif.recording import KnobChange
from pbkv.whatif.setting import Setting
from tests.whatif.small import small

RECORDING = small(4, device_tokens=64_000, host_tokens=128_000)


@pytest.mark.parametrize(("axis", "text", "values"), [
    ("policy", "lru,he", ["lru", "he"]),
    ("policy", " lru , he,lru", ["lru", "he"]),
    ("gamma", "0.5:1:0.1", [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
    ("gamma", "0,.5,0.5:0.6:0.05", [0.0, 0.5, 0.55, 0.6]),
    ("gamma", "0:1:0.4", [0.0, 0.4, 0.8]),
    ("k", "1,2,3,4", [1, 2, 3, 4]),
    ("k", "1:8:2", [1, 3, 5, 7]),
    ("prefetch_budget", "0,64MiB", [0, 64 << 20]),
    ("prefetch_budget", "1kB,1 KiB,1000", [1000, 1024]),
    ("prefetch_budget", "0:2MiB:1MiB", [0, 1 << 20, 2 << 20]),
    ("prefetch_budget", "1.5GiB", [3 << 29]),
    ("device_tokens", "x0.5,x1,x2", [32_000, 64_000, 128_000]),
    ("device_tokens", "x0.5:x1.5:x0.25", [32_000, 48_000, 64_000, 80_000, 96_000]),
    ("device_tokens", "50k,1.2M,70000", [50_000, 1_200_000, 70_000]),
    ("host_tokens", "0,x2", [0, 256_000]),
    ("concurrency", "32,64,1k", [32, 64, 1000]),
    ("prefetch", "off,aggressive", ["off", "aggressive"]),
    ("host_order", "score", ["score"]),
    ("predictor", "markov,recorded", ["markov", "recorded"]),
])
def test_values(axis: str, text: str, values: list[object]) -> None:
    assert AXES[axis].values(text, RECORDING) == values


def test_link_is_what_a_step_moves() -> None:
    moved = 25e9 * 0.025
    (value,) = AXES["prefetch_budget"].values("link", RECORDING)
    assert value == link_budget(RECORDING) and moved - (1 << 20) < float(value) <= moved


@pytest.mark.parametrize(("axis", "text", "words"), [
    ("policy", "", ["policy ''", "lru"]),
    ("policy", "lru,", ["policy ''"]),
    ("policy", "best", ["policy 'best'", "first_use"]),
    ("gamma", "nan", ["gamma 'nan'", "from 0 to 1"]),
    ("gamma", "inf", ["gamma 'inf'"]),
    ("gamma", "-0.5", ["gamma '-0.5'"]),
    ("gamma", "1.1", ["gamma '1.1'"]),
    ("gamma", "1:0.5:0.1", ["gamma '1:0.5:0.1'", "START at most STOP"]),
    ("gamma", "0:1:0", ["STEP above 0"]),
    ("gamma", "0:1", ["gamma '0:1'"]),
    ("gamma", "0:1:0.1:2", ["gamma '0:1:0.1:2'"]),
    ("gamma", "0:1:1e-9", ["gamma '0:1:1e-9'"]),
    ("gamma", "0:1:0.000001", ["1,000,001 values", "2,000"]),
    ("k", "0", ["k '0'", "from 1 to 8"]),
    ("k", "9", ["k '9'"]),
    ("k", "1.5", ["k '1.5'"]),
    ("k", "three", ["k 'three'"]),
    ("prefetch_budget", "-1MiB", ["budget '-1MiB'", "64MiB"]),
    ("prefetch_budget", "64 MB/s", ["budget '64 MB/s'"]),
    ("prefetch_budget", "2TiB", ["budget '2TiB'"]),
    ("prefetch_budget", "x2", ["budget 'x2'"]),
    ("device_tokens", "0", ["device-tokens '0'"]),
    ("device_tokens", "-5", ["device-tokens '-5'", "x1.5"]),
    ("device_tokens", "64MiB", ["device-tokens '64MiB'"]),
    ("device_tokens", "x", ["device-tokens 'x'"]),
    ("device_tokens", "xnan", ["device-tokens 'xnan'"]),
    ("device_tokens", "x0", ["device-tokens 'x0'"]),
    ("device_tokens", "x1:500000:x1", ["device-tokens 'x1:500000:x1'"]),
    ("device_tokens", "100000.5", ["device-tokens '100000.5'"]),
    ("device_tokens", "9" * 30, ["device-tokens '9999"]),
    ("concurrency", "0", ["concurrency '0'"]),
    ("predictor", "", ["predictor ''"]),
    ("gamma", "0.1," * 9000, ["characters"]),
])
def test_what_is_no_value(axis: str, text: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as refusal:
        AXES[axis].values(text, RECORDING)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 300
    for word in words:
        assert word in str(refusal.value)


def test_a_multiple_of_nothing() -> None:
    with pytest.raises(UsageError, match="none were recorded"):
        AXES["host_tokens"].values("x2", small(4))


@given(st.text(max_size=40), st.sampled_from(sorted(AXES)))
def test_any_text_is_values_within_bounds_or_refused(text: str, axis: str) -> None:
    try:
        values = AXES[axis].values(text, RECORDING)
    except UsageError:
        return
    assert 1 <= len(values) <= MAX_CELLS and len(set(values)) == len(values)
    assert all(isinstance(value, str) or AXES[axis].low <= value <= AXES[axis].high for value in values)


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 1000))
def test_a_range_holds_both_ends_and_its_steps(start: int, more: int, step: int) -> None:
    values = AXES["prefetch_budget"].values(f"{start}:{start + more * step}:{step}", RECORDING)
    assert values == [start + n * step for n in range(more + 1)]


# ---- the product ------------------------------------------------------------------------------------------------------------


def test_the_product_is_in_order_the_last_axis_fastest() -> None:
    found = parse_axes({"policy": "he,first_use", "device_tokens": "x1,x2"}, RECORDING)
    assert found == [Setting(policy=p, device_tokens=n) for p, n in product(("he", "first_use"), (64_000, 128_000))]


def test_no_axis_no_setting() -> None:
    assert parse_axes({}, RECORDING) == []


def test_gamma_and_k_are_asked_of_those_who_read_them() -> None:
    found = parse_axes({"policy": ",".join(POLICIES), "gamma": "0.5,0.9", "k": "1,3"}, RECORDING)
    blind = [s for s in found if s.policy not in ("he", "first_use")]
    assert blind == [Setting(policy=p) for p in POLICIES if p not in ("he", "first_use")]
    assert [s for s in found if s.policy == "he"] == [
        Setting(policy="he", k=1), Setting(policy="he", gamma=0.5, k=3), Setting(policy="he", gamma=0.9, k=3),
    ]
    assert len([s for s in found if s.policy == "first_use"]) == 4


def test_a_grid_of_a_million_is_refused_before_it_is_made() -> None:
    with pytest.raises(UsageError, match="the grid has 1,000,000 settings: expected at most 2,000"):
        parse_axes({"gamma": "0:0.999:0.001", "concurrency": "1:1000:1"}, RECORDING)


def test_an_axis_that_is_none() -> None:
    with pytest.raises(UsageError, match="axis 'speed': no such axis; expected one of policy"):
        parse_axes({"speed": "1"}, RECORDING)


def test_a_predictor_that_cannot_be() -> None:
    assert parse_axes({"policy": "he", "predictor": "markov,uniform"}, RECORDING) == [
        Setting(policy="he", predictor="markov"), Setting(policy="he", predictor="uniform"),
    ]
    for name, words in (("oracle", "'oracle'"), ("recorded", "has no predictions")):
        with pytest.raises(UsageError, match=words):
            parse_axes({"predictor": f"markov,{name}"}, RECORDING)


def test_a_pool_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="device"):
        parse_axes({"device_tokens": "5"}, RECORDING)


def test_a_knob_that_changed_meanwhile_counts_with_all_its_values() -> None:
    base = replace(RECORDING, knobs={**RECORDING.knobs, "policy": "lru"})
    assert parse_axes({"gamma": "0.5,0.9"}, base) == [Setting()]
    changed = replace(base, changes=(KnobChange(5.0, "policy", "he"),))
    assert parse_axes({"gamma": "0.5,0.9"}, changed) == [Setting(gamma=0.5), Setting(gamma=0.9)]
    assert parse_axes({"policy": "lru", "gamma": "0.5,0.9"}, changed) == [Setting(policy="lru")]
