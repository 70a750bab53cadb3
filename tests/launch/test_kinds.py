"""Kinds of models from their config.json; against SGLang's own verdict they are checked in tests/sglang_cache/test_launch.py."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from pbkv.launch.kinds import RECURRENT, SLIDING, read_config, unsupported
from tests.core.test_identity_hostile import ANYTHING

FULL = ["full_attention", "full_attention"]


@pytest.mark.parametrize(("config", "why"), [
    ({}, None),
    ({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "sliding_window": None, "layer_types": FULL}, None),
    ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 32768, "use_sliding_window": False}, None),
    ({"architectures": ["MistralForCausalLM"], "sliding_window": 4096}, None),  # SGLang keeps all of it in one pool
    ({"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512}, None),
    ({"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 128}, None),
    ({"architectures": ["GptOssForCausalLM"], "layer_types": ["sliding_attention", "full_attention"]}, SLIDING),
    ({"architectures": ["Gemma4ForConditionalGeneration"], "text_config": {"model_type": "gemma4_text"}}, SLIDING),
    ({"architectures": ["Mine"], "text_config": {"is_hybrid_swa": True}}, SLIDING),
    ({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"}, RECURRENT),
    ({"architectures": ["X"], "model_type": "x_vl", "text_config": {"model_type": "kimi_linear"}}, RECURRENT),
    ({"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"]}, RECURRENT),
    ({"model_type": "granitemoehybrid", "layer_types": ["attention"]}, None),
    ({"architectures": "GptOssForCausalLM", "layer_types": "mamba", "text_config": "mamba"}, None),
])
def test_kinds(config: dict[str, Any], why: str | None) -> None:
    assert unsupported(config) == why


def test_sliding_layers_in_one_pool_are_served_and_states_are_not() -> None:
    assert unsupported({"architectures": ["GptOssForCausalLM"]}, one_pool=True) is None
    assert unsupported({"model_type": "lfm2"}, one_pool=True) == RECURRENT


def test_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    assert read_config(str(tmp_path)) == {"model_type": "qwen3"}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_what_cannot_be_read_is_left_to_sglang(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.json").write_bytes(data)
    assert read_config(str(tmp_path)) is None
    assert read_config("Qwen/Qwen3-14B") is None
    assert read_config("\0") is None


@given(ANYTHING)
def test_any_configuration(value: Any) -> None:
    for config in ({"text_config": value, "architectures": value}, {"layer_types": value, "model_type": "x"}):
        assert unsupported(config) in (None, SLIDING, RECURRENT)
