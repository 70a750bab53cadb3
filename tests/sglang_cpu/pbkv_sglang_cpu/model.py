"""A model small enough to serve on two CPU cores: byte-level tokenizer, chat template, two Qwen3 layers with seeded random weights.

Also as a mixture of experts (`moe`) and with multi-head latent attention (`mla`). One token is one byte, so prompt lengths in tests are
lengths of text. The context is 32,768 tokens. What it writes is printable ASCII and depends on every part of the prompt, so a wrong KV
entry shows in the output, and an answer sent back as text is the same tokens again.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_VOCABULARY = 512
#: The byte-level alphabet writes a space as this letter.
_SPACE = "\u0120"
_CONTEXT = 32_768
#: Wide enough that attention, not the last token, decides the next one; with the usual 0.02 the output ignores the prompt.
_INITIALIZER_RANGE = 0.2
#: Bump when the files change, so that a cached model is made anew.
VERSION = 2


def make_model(path: str | Path, *, seed: int = 0, kind: str = "dense") -> Path:
    """Write the model to the folder `path` unless a finished one is there; returns the folder. Needs torch and transformers.

    `kind` is dense, moe or mla; KeyError for another.
    """
    architecture = _ARCHITECTURES[kind]
    folder = Path(path)
    marker = folder / "pbkv_tiny_model"
    made = f"{VERSION} {seed} {kind}"
    if marker.is_file() and marker.read_text() == made:
        return folder
    # Built beside its place and moved in, so that an interrupted run leaves no half model behind.
    building = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    vocabulary = _write_tokenizer(building)
    _write_weights(building, *architecture(_sizes(vocabulary)), seed)
    (building / marker.name).write_text(made)
    shutil.rmtree(folder, ignore_errors=True)
    building.rename(folder)
    return folder


def _write_tokenizer(folder: Path) -> dict[str, int]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), *_SPECIALS])}
    tokenizer: Any = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: Any = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=["<|im_start|>"]
    )
    fast.chat_template = _CHAT_TEMPLATE
    fast.save_pretrained(folder)
    return vocabulary


def _sizes(vocabulary: dict[str, int]) -> dict[str, Any]:
    return {
        "vocab_size": _VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": _CONTEXT, "tie_word_embeddings": False, "bos_token_id": None, "initializer_range": _INITIALIZER_RANGE,
        "eos_token_id": vocabulary["<|im_end|>"], "pad_token_id": vocabulary["<|endoftext|>"], "dtype": "float32",
    }


def _classes(name: str, fields: dict[str, Any]) -> tuple[Any, Any]:
    """The model class of that name, and its configuration."""
    import transformers

    library: Any = transformers
    return getattr(library, f"{name}ForCausalLM"), getattr(library, f"{name}Config")(**fields)


def _dense(sizes: dict[str, Any]) -> tuple[Any, Any]:
    return _classes("Qwen3", {**sizes, "num_key_value_heads": 2, "head_dim": 16})


def _moe(sizes: dict[str, Any]) -> tuple[Any, Any]:
    experts = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
    return _classes("Qwen3Moe", {**sizes, **experts, "num_key_value_heads": 2, "head_dim": 16})


def _mla(sizes: dict[str, Any]) -> tuple[Any, Any]:
    latent = {"kv_lora_rank": 32, "q_lora_rank": None, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}
    experts = {"n_routed_experts": 4, "n_shared_experts": 1, "moe_intermediate_size": 32, "num_experts_per_tok": 1}
    dense = sizes["num_hidden_layers"]  # no layer has experts
    return _classes("DeepseekV2", {**sizes, **latent, **experts, "first_k_dense_replace": dense, "num_key_value_heads": 4})


_ARCHITECTURES = {"dense": _dense, "moe": _moe, "mla": _mla}
#: What SGLang's DeepSeek model reads and the library it is written with has no field for.
_DEEPSEEK = {
    "moe_layer_freq": 1, "rope_theta": 10_000.0,
    "rope_scaling": {
        "type": "yarn", "rope_type": "deepseek_yarn", "factor": 2.0, "original_max_position_embeddings": _CONTEXT // 2, "mscale": 1.0,
        "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1,
    },
}


def _write_weights(folder: Path, architecture: Any, config: Any, seed: int) -> None:
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = architecture(config)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    printable = torch.zeros(_VOCABULARY, 1)
    printable[[i for token, i in vocabulary.items() if token == _SPACE or (len(token) == 1 and "!" <= token <= "~")]] = 1
    with torch.no_grad():
        model.lm_head.weight.mul_(printable)  # a zero row has logit 0, and among 95 random ones some are above it
    model.save_pretrained(folder, safe_serialization=True)
    if config.model_type == "deepseek_v2":
        path = folder / "config.json"
        written = json.loads(path.read_text())
        written.pop("rope_parameters", None)
        path.write_text(json.dumps({**written, **_DEEPSEEK}, indent=2))


if __name__ == "__main__":
    print(make_model(sys.argv[1]))
