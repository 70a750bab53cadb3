"""Durations: the roofline against figures worked out by hand, straight lines, and lines fitted to noisy logs."""

import random

import pytest

from pbkv.engine.refit import StepRow, refit
from pbkv.engine.timing import GPUS, MODELS, Linear, Roofline, attention_pairs, preset
from pbkv.errors import UsageError


def test_kv_bytes_per_token_are_the_published_ones() -> None:
    assert MODELS["qwen3-14b"].bytes_per_token == 160 * 1024
    assert MODELS["qwen3-32b"].bytes_per_token == 256 * 1024


def test_attention_pairs_count_context_and_triangle() -> None:
    assert attention_pairs(3, 10) == (10 + 1) + (10 + 2) + (10 + 3)
    assert attention_pairs(1, 0) == 1
    split = attention_pairs(400, 0) + attention_pairs(600, 400)
    assert split == pytest.approx(attention_pairs(1000, 0))


def test_long_prefill_is_bound_by_computing() -> None:
    timing = preset("qwen3-14b@h100")
    tokens = 8192
    flops = 2 * 13.2e9 * tokens + 4 * 40 * 40 * 128 * attention_pairs(tokens, 0)
    assert timing.prefill_s(tokens, attention_pairs(tokens, 0)) == pytest.approx(flops / (989e12 * 0.5) + 0.004)


def test_short_prefill_and_decode_are_bound_by_reading_the_weights() -> None:
    timing = preset("qwen3-14b@a6000")
    weights = 29.6e9 / (768e9 * 0.8)
    assert timing.prefill_s(1, 1.0) == pytest.approx(weights + 0.004)
    assert timing.decode_s(1, 0) == pytest.approx(weights + 0.001)
    assert timing.decode_s(32, 320_000) == pytest.approx((29.6e9 + 320_000 * 163_840) / (768e9 * 0.8) + 0.001)


def test_many_calls_make_decoding_bound_by_computing() -> None:
    timing = preset("qwen3-14b@h200")
    assert timing.decode_s(4096, 4096.0) == pytest.approx((2 * 13.2e9 * 4096 + 4 * 40 * 40 * 128 * 4096) / (989e12 * 0.5) + 0.001)


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_gpus_share_the_work(tp: int) -> None:
    one, many = preset("qwen3-14b@h100"), preset("qwen3-14b@h100", tp)
    assert many.prefill_s(4096, 1e7) - 0.004 == pytest.approx((one.prefill_s(4096, 1e7) - 0.004) / tp)
    assert many.link_bytes_per_s == pytest.approx(one.link_bytes_per_s * tp)
    assert many.device_tokens() > (one.device_tokens() if tp > 1 else 0)


@pytest.mark.parametrize(("name", "tp", "word"), [
    ("qwen3-14b", 1, "MODEL@GPU"), ("llama@h100", 1, "MODEL@GPU"), ("qwen3-14b@b200", 1, "MODEL@GPU"), ("qwen3-32b@a6000", 1, "raise tp"),
    ("qwen3-14b@h100", 0, "tp = 0"),
])
def test_impossible_presets_say_what_to_do(name: str, tp: int, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        preset(name, tp)


def test_every_preset_is_faster_on_the_faster_gpu() -> None:
    for model in MODELS.values():
        a6000, h100, h200 = (Roofline(model, GPUS[gpu], 2) for gpu in ("a6000", "h100", "h200"))
        assert a6000.decode_s(16, 1e5) > h100.decode_s(16, 1e5) > h200.decode_s(16, 1e5)
        assert a6000.prefill_s(4096, 1e7) > h100.prefill_s(4096, 1e7) == h200.prefill_s(4096, 1e7)


def log_of(timing: Linear, seed: int, noise: float, spikes: float) -> list[StepRow]:
    rng, rows = random.Random(seed), []
    for _ in range(400):
        slow = (1 + rng.gauss(0, noise)) * (rng.uniform(5, 50) if rng.random() < spikes else 1)
        if rng.random() < 0.4:
            tokens = rng.randint(64, 8192)
            rows.append(StepRow("prefill", rng.randint(1, 4), tokens, slow * timing.prefill_s(tokens, 0)))
        else:
            calls, steps = rng.randint(1, 32), rng.randint(1, 200)
            rows.append(StepRow("decode", calls, calls * steps, slow * steps * timing.decode_s(calls, 0)))
    return rows


@pytest.mark.parametrize(("noise", "spikes", "tolerance"), [(0.0, 0.0, 1e-6), (0.05, 0.0, 0.1), (0.05, 0.1, 0.15)])
def test_a_fit_finds_the_lines_behind_a_log(noise: float, spikes: float, tolerance: float) -> None:
    true = Linear(prefill_base_s=0.02, prefill_token_s=1 / 9000, decode_base_s=0.018, decode_request_s=0.0004)
    found = refit(log_of(true, 3, noise, spikes))
    for tokens in (1000, 8000):
        assert found.prefill_s(tokens, 0) == pytest.approx(true.prefill_s(tokens, 0), rel=tolerance)
    for calls in (2, 30):
        assert found.decode_s(calls, 0) == pytest.approx(true.decode_s(calls, 0), rel=tolerance)


def test_a_fit_keeps_what_a_log_cannot_tell() -> None:
    start = Linear(bytes_per_token=7, link_bytes_per_s=1e6, layers=3)
    found = refit(log_of(Linear(), 1, 0.0, 0.0), start)
    assert (found.bytes_per_token, found.link_bytes_per_s, found.layers) == (7, 1e6, 3)


def test_a_log_of_one_size_gives_no_negative_coefficients() -> None:
    prefill = [StepRow("prefill", 1, 512, 0.1 - n / 1000) for n in range(20)]
    found = refit(prefill + [StepRow("decode", n, n, 0.03 - n / 1000) for n in range(1, 20)])
    assert min(found.prefill_base_s, found.prefill_token_s, found.decode_base_s, found.decode_request_s) >= 0


def test_too_short_a_log_is_refused() -> None:
    with pytest.raises(UsageError, match="0 decode steps"):
        refit([StepRow("prefill", 1, 100, 0.1)] * 20)
