"""Kinds of models by how they keep what they have read: pbkv serves models whose whole context lies in one pool of KV pages.

From the model's config.json alone, so that a start is refused at once; the plugin asks SGLang itself for its verdict on the loaded model.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

SLIDING = (
    "keeps sliding-window layers in a pool of their own, which pbkv does not manage; add --disable-hybrid-swa-memory (one pool) "
    "or start SGLang without pbkv"
)
RECURRENT = "keeps a recurrent state beside its KV, which pbkv does not manage; start SGLang without pbkv"
#: Architectures whose sliding-window layers have a pool of their own in SGLang 0.5.23, whatever the rest of their configuration says.
SLIDING_ARCHITECTURES = frozenset({
    "DeepseekV4ForCausalLM", "DeepseekV4ForCausalLMDSpark", "DeepseekV4ForCausalLMNextN", "DiffusionGemmaForBlockDiffusion",
    "EmbeddingGemma2Model", "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration",
    "GptOssForCausalLM", "GraniteMoeSWAForCausalLM", "GraniteSWAForCausalLM", "IQuestQ1ForCausalLM", "IQuestQ1MTP",
    "InklingForConditionalGeneration", "InklingForConditionalGenerationMTP", "Llama4ForConditionalGeneration", "MellumForCausalLM",
    "MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM", "MiMoV2MTP", "MuseGlimmerForCausalLM", "MuseGlimmerForConditionalGeneration",
    "Step3p5ForCausalLM", "Step3p5MTP", "Step3p7ForConditionalGeneration", "UnlimitedOCRForCausalLM",
})
#: Model types that have recurrent or convolutional layers in every configuration.
RECURRENT_TYPES = frozenset({
    "bailing_hybrid", "falcon_h1", "falcon_mamba", "gigachat3_5", "intern_s2_preview", "jet_nemotron", "jet_vlm", "kimi_linear", "lfm2",
    "lfm2_moe", "lfm2_vl", "mamba", "mamba2", "nemotron_h", "NemotronH_Nano_VL_V2", "qwen3_5", "qwen3_5_moe", "qwen3_next", "zaya",
})
#: Entries of `layer_types` that have a state instead of pages.
RECURRENT_LAYERS = frozenset({"linear_attention", "mamba", "mamba2", "conv", "recurrent"})
#: Largest config.json that is read, bytes.
_MAX_CONFIG = 16 << 20


def unsupported(config: Mapping[str, Any], *, one_pool: bool = False) -> str | None:
    """Why a model of this config.json cannot be served, or None. `one_pool`: sliding-window layers share the pool of the others."""
    inner = config.get("text_config")
    texts = [config, cast(Mapping[str, Any], inner)] if isinstance(inner, Mapping) else [config]
    if any(text.get("model_type") in RECURRENT_TYPES or _lists(text, "layer_types") & RECURRENT_LAYERS for text in texts):
        return RECURRENT
    sliding = _lists(config, "architectures") & SLIDING_ARCHITECTURES or any(text.get("is_hybrid_swa") is True for text in texts)
    return SLIDING if sliding and not one_pool else None


def _lists(config: Mapping[str, Any], field: str) -> frozenset[str]:
    value = config.get(field)
    return frozenset(item for item in cast(list[Any], value) if isinstance(item, str)) if isinstance(value, list) else frozenset()


def read_config(model: str) -> Mapping[str, Any] | None:
    """config.json of a model in a local folder; None when there is none to be read, which is SGLang's to complain about."""
    path = Path(model) / "config.json"
    try:
        if path.stat().st_size > _MAX_CONFIG:
            return None
        config: object = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return cast(Mapping[str, Any], config) if isinstance(config, dict) else None
