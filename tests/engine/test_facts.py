"""What an engine says of itself reads back as the very same engine."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.engine.facts import engine_facts, serving_facts, settings_of
from pbkv.engine.settings import EngineSettings
from pbkv.engine.timing import Linear, Roofline, preset
from pbkv.errors import UsageError
from pbkv.knobs import KNOBS, KnobSet
from pbkv.predictor.markov import OnlineMarkov
from pbkv.predictor.uniform import Uniform

seconds = st.floats(0, 1e3, allow_nan=False)
linear = st.builds(
    Linear, seconds, seconds, seconds, seconds, seconds, seconds, st.integers(1, 1 << 30), st.floats(1, 1e13), st.integers(0, 128),
)
presets = st.sampled_from([preset("qwen3-14b@h100"), preset("qwen3-32b@h200", 4), dataclasses.replace(preset("qwen3-14b@a6000"), tp=3)])


@given(
    st.integers(1, 1024), st.integers(2048, 1 << 30), st.integers(0, 1 << 30), st.sampled_from(["write_through", "write_back"]),
    st.integers(1, 65_536), st.integers(1024, 1 << 20), st.floats(0.01, 1), st.one_of(linear, presets), st.integers(-5, 5),
    st.booleans(),
)
def test_settings_read_back_exactly(
    page: int, device: int, host: int, policy: str, running: int, chunk: int, shared: float, timing: Linear | Roofline, seed: int,
    overlap: bool,
) -> None:
    made = EngineSettings(page, device, host, policy, running, chunk, shared, timing, seed, overlap)  # type: ignore[arg-type]
    assert settings_of(engine_facts(made)) == made


def test_knobs_read_back_exactly() -> None:
    facts = serving_facts(KnobSet({**KnobSet().values, "gamma": 1 / 3}), OnlineMarkov())
    assert {name.removeprefix("knob."): KNOBS[name.removeprefix("knob.")].parse_text(v) for name, v in facts.items() if "." in name} == {
        **KnobSet().values, "gamma": 1 / 3,
    }


def test_only_the_chain_alone_is_markov() -> None:
    class Other(OnlineMarkov):
        pass

    names = [serving_facts(KnobSet(), predictor)["predictor"] for predictor in (OnlineMarkov(), Other(), Uniform(["a"]))]
    assert names == ["markov", "other", "uniform"]


def test_what_is_missing_has_its_default_and_a_measured_timing_is_for_the_reader_to_fit() -> None:
    assert settings_of({}) == EngineSettings()
    assert settings_of({"page_size": "16", "timing": "measured", "timing.bytes_per_token": "5"}) == EngineSettings(page_size=16)


@pytest.mark.parametrize(("facts", "message"), [
    ({"page_size": "many"}, "not a number"),
    ({"page_size": "0"}, "page_size = 0"),
    ({"timing": "roofline", "timing.model.name": "x"}, "not complete"),
])
def test_damaged_facts_are_refused(facts: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settings_of(facts)
