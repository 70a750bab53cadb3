"""Predictions as numbers: nothing of weight is lost, and what was cut short is noticed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.knobs import K_MAX
from pbkv.predictor.base import Prediction
from pbkv.predictor.budget import Answer
from pbkv.predictor.pack import ONE, pack, unpack

shares = st.floats(0, 1, allow_nan=False)
visits = st.dictionaries(st.integers(0, 4095), shares, max_size=12)
predictions = st.one_of(
    st.just(Prediction()),
    st.builds(
        Prediction, st.lists(visits, min_size=K_MAX, max_size=K_MAX).map(tuple), st.lists(shares, min_size=K_MAX, max_size=K_MAX).map(tuple)
    ),
)
answers = st.lists(st.builds(Answer, predictions, st.integers(1, 255)), max_size=6)


@given(answers)
def test_what_comes_out_is_what_went_in_to_a_unit(made: list[Answer]) -> None:
    found = unpack(pack(made), len(made))
    for (one, version), (other, same) in zip(made, found, strict=True):
        assert version == same
        assert np.allclose(one.ends, other.ends, atol=1 / ONE, rtol=0)
        for before, after in zip(one.visits, other.visits, strict=True):
            assert all(abs(before.get(a, 0) - after.get(a, 0)) <= 1 / ONE for a in before | after)
            assert 0 not in after.values()


@given(answers)
def test_a_second_trip_changes_nothing(made: list[Answer]) -> None:
    """So the rank that predicted and those that were told have the same floats."""
    once = unpack(pack(made), len(made))
    assert unpack(pack(once), len(made)) == once


@given(answers.filter(bool), st.data())
def test_numbers_that_are_no_predictions_are_refused(made: list[Answer], data: st.DataObject) -> None:
    packed = pack(made)
    with pytest.raises(ValueError, match="end in the middle"):
        unpack(packed[: data.draw(st.integers(0, len(packed) - 1))], len(made))
    with pytest.raises(ValueError, match="more than"):
        unpack(np.append(packed, np.int32(0)), len(made))
