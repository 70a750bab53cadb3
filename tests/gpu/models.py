"""Models for a machine without any: one whose answers depend on every KV entry, and one with the shape of a real one but no weights."""

import json
from pathlib import Path
from typing import Any

#: Token ids of both are below it.
VOCABULARY = 4096
_QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000, "max_position_embeddings": 40_960, "tie_word_embeddings": False, "vocab_size": VOCABULARY,
    "eos_token_id": VOCABULARY - 1, "head_dim": 128,
}
#: About the shape of Qwen3-8B, except for the vocabulary: 7 billion weights, 144 KiB of KV per token in bfloat16.
_LARGE = {
    "hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
}
#: Small enough that a prefill is over before a delayed load.
_SMALL = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "torch_dtype": "float32",
}


def shape_only(folder: Path) -> Path:
    """A folder for `--load-format dummy`: a configuration without weights or tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**_QWEN3, **_LARGE}))
    return folder


def with_weights(folder: Path, *, seed: int = 0) -> Path:
    """A small model with random weights, wide enough that attention decides the next token: a wrong KV entry changes the answer."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config: Any = Qwen3Config(**{**_QWEN3, **_SMALL, "initializer_range": 0.2})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = Qwen3ForCausalLM(config)
    model.save_pretrained(folder, safe_serialization=True)
    return folder
