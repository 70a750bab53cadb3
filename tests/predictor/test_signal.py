"""Text signals: the same numbers everywhere, directions kept, nothing made of nothing."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pbkv.predictor.signal import (
    LAST_IDS,
    MAX_IDS,
    SIGNAL,
    hidden_kind,
    ids_kind,
    is_served,
    of_ids,
    projection,
    quantised,
)

MASK = (1 << 64) - 1
#: Of the projection's bytes; another one makes every trained predictor deaf.
FINGERPRINT = "6187d46607692a0a"


def slow_bag(ids: list[int]) -> list[int]:
    """The hashing in plain Python."""
    bag = [0.0] * 64
    for token in ids:
        code = (token + 0x9E3779B97F4A7C15) & MASK
        code = ((code ^ (code >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        code = ((code ^ (code >> 27)) * 0x94D049BB133111EB) & MASK
        code ^= code >> 31
        bag[code % 64] += 1 if code >> 63 else -1
    length = sum(x * x for x in bag) ** 0.5
    return [round(x * 127 / length) if length else 0 for x in bag]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(float), b.astype(float)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_the_projection_is_the_same_for_all_time() -> None:
    """Weights trained on recordings of one release must fit the signals of the next."""
    matrix = projection(64)
    assert matrix.shape == (64, SIGNAL) and set(np.unique(matrix)) == {-1, 1}
    digest = hashlib.sha256(matrix.tobytes()).hexdigest()
    assert digest == hashlib.sha256(projection(64).tobytes()).hexdigest()
    assert digest.startswith(FINGERPRINT)
    assert abs(matrix.mean()) < 0.05


def test_the_projection_keeps_angles() -> None:
    rng = np.random.default_rng(0)
    for mixed in (0.0, 0.5, 0.9):
        a, b = rng.standard_normal((2, 5120)).astype(np.float32)
        b = mixed * a + (1 - mixed**2) ** 0.5 * b
        p, q = (quantised(row) for row in np.stack([a, b]) @ projection(5120).astype(np.float32))
        assert abs(cosine(p, q) - cosine(a, b)) < 0.25


@given(arrays(np.float32, SIGNAL, elements=st.floats(-1e6, 1e6, width=32)))
def test_quantising_keeps_the_direction(row: np.ndarray) -> None:
    signal = quantised(row)
    if signal is None:
        assert not row.any() or not np.isfinite(row).all()
        return
    assert signal.dtype == np.int8 and np.abs(signal.astype(int)).max() == 127
    scaled = row.astype(float) * 127 / np.abs(row).max()
    assert np.abs(scaled - signal).max() <= 0.51


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_no_signal(bad: float) -> None:
    row = np.ones(SIGNAL, np.float32)
    row[3] = bad
    assert quantised(row) is None
    assert quantised(np.zeros(SIGNAL, np.float32)) is None


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=3 * LAST_IDS))
def test_ids_are_hashed_as_described(ids: list[int]) -> None:
    signal = of_ids(ids)
    assert signal is not None and signal.dtype == np.int8
    assert np.abs(signal[:64].astype(int) - slow_bag(ids)).max() <= 1
    assert np.abs(signal[64:].astype(int) - slow_bag(ids[-LAST_IDS:])).max() <= 1


def test_how_a_text_ends_counts_twice_and_its_far_past_not_at_all() -> None:
    assert of_ids([]) is None
    body = list(range(1000))
    newest = list(range(MAX_IDS))
    assert np.array_equal(of_ids([9] * 50 + newest), of_ids(newest))
    one, other = of_ids([*body, *[7] * LAST_IDS]), of_ids([*body, *[8] * LAST_IDS])
    assert cosine(one[64:], other[64:]) < 0.5 < cosine(one[:64], other[:64]) + 1


def test_kinds_tell_models_apart() -> None:
    assert hidden_kind("qwen3", 40, 5120) != hidden_kind("qwen3", 64, 5120)
    assert is_served(hidden_kind("qwen3", 40, 5120)) and is_served(ids_kind(151_936))
    assert not is_served("") and not is_served("words")


