"""How long a step takes: a roofline of model and GPU, or straight lines with given coefficients. Seconds, tokens, bytes.

Sources of the figures: model cards and config.json of Qwen/Qwen3-14B and Qwen/Qwen3-32B; NVIDIA's data sheets of RTX A6000, H100 SXM and
H200 SXM (dense BF16 tensor rates, without sparsity). The efficiencies are assumptions, see docs/engine.md.
"""

from dataclasses import dataclass
from typing import Protocol

from pbkv.errors import UsageError


class Timing(Protocol):
    """Durations of steps and transfers. `layers` > 0: a load from the host overlaps with computing, layer by layer."""

    @property
    def bytes_per_token(self) -> int: ...

    @property
    def link_bytes_per_s(self) -> float: ...

    @property
    def layers(self) -> int: ...

    def prefill_s(self, tokens: int, pairs: float) -> float:
        """A prefill step of `tokens` new tokens that attend to `pairs` (query, key) pairs in all."""
        ...

    def decode_s(self, requests: int, kv_tokens: float) -> float:
        """One decode step of `requests` calls with `kv_tokens` of context in all."""
        ...


def attention_pairs(new: int, context: int) -> float:
    """(query, key) pairs of `new` tokens behind `context` cached ones: each sees the context, itself and what is before it."""
    return new * (context + (new + 1) / 2)


@dataclass(frozen=True)
class Linear:
    """Steps as straight lines. The defaults: 12,000 prefilled tokens/s without attention's square, a constant decode step, 160 KiB per
    token over 25 GB/s.
    """

    prefill_base_s: float = 0.005
    prefill_token_s: float = 1 / 12_000
    prefill_pair_s: float = 0.0
    decode_base_s: float = 0.025
    decode_request_s: float = 0.0
    decode_kv_token_s: float = 0.0
    bytes_per_token: int = 160 * 1024
    link_bytes_per_s: float = 25e9
    layers: int = 0

    def prefill_s(self, tokens: int, pairs: float) -> float:
        return self.prefill_base_s + self.prefill_token_s * tokens + self.prefill_pair_s * pairs

    def decode_s(self, requests: int, kv_tokens: float) -> float:
        return self.decode_base_s + self.decode_request_s * requests + self.decode_kv_token_s * kv_tokens


@dataclass(frozen=True)
class Model:
    """What a forward pass costs. `parameters` without embeddings (they are looked up, not multiplied); `weight_bytes` of all, in BF16."""

    name: str
    layers: int
    query_heads: int
    kv_heads: int
    head_dim: int
    parameters: float
    weight_bytes: float

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of one token in all layers, BF16."""
        return self.layers * self.kv_heads * self.head_dim * 2 * 2

    @property
    def pair_flops(self) -> float:
        """Q.K and P.V of one (query, key) pair over all heads and layers: a multiplication and an addition each."""
        return 4.0 * self.layers * self.query_heads * self.head_dim


@dataclass(frozen=True)
class Gpu:
    """One GPU's memory (bytes), rates (bytes/s, FLOP/s) and link to the host (bytes/s and direction), as the data sheet has them."""

    name: str
    memory_bytes: float
    memory_bytes_per_s: float
    flops_per_s: float
    link_bytes_per_s: float


MODELS = {
    "qwen3-14b": Model("qwen3-14b", 40, 40, 8, 128, 13.2e9, 14.8e9 * 2),
    "qwen3-32b": Model("qwen3-32b", 64, 64, 8, 128, 31.2e9, 32.8e9 * 2),
}
GPUS = {
    "a6000": Gpu("a6000", 48e9, 768e9, 154.8e12, 32e9),
    "h100": Gpu("h100", 80e9, 3.35e12, 989e12, 64e9),
    "h200": Gpu("h200", 141e9, 4.8e12, 989e12, 64e9),
}


@dataclass(frozen=True)
class Roofline:
    """The slower of computing and moving memory, plus a fixed overhead per step. `tp` GPUs share weights, KV and work evenly; what they
    tell each other is not modelled.
    """

    model: Model
    gpu: Gpu
    tp: int = 1
    compute_efficiency: float = 0.5
    memory_efficiency: float = 0.8
    link_efficiency: float = 0.8
    prefill_overhead_s: float = 0.004
    decode_overhead_s: float = 0.001

    @property
    def bytes_per_token(self) -> int:
        return self.model.bytes_per_token

    @property
    def link_bytes_per_s(self) -> float:
        return self.gpu.link_bytes_per_s * self.link_efficiency * self.tp

    @property
    def layers(self) -> int:
        return self.model.layers

    @property
    def _flops(self) -> float:
        return self.gpu.flops_per_s * self.compute_efficiency * self.tp

    @property
    def _memory(self) -> float:
        return self.gpu.memory_bytes_per_s * self.memory_efficiency * self.tp

    def prefill_s(self, tokens: int, pairs: float) -> float:
        flops = 2.0 * self.model.parameters * tokens + self.model.pair_flops * pairs
        return max(flops / self._flops, self.model.weight_bytes / self._memory) + self.prefill_overhead_s

    def decode_s(self, requests: int, kv_tokens: float) -> float:
        flops = 2.0 * self.model.parameters * requests + self.model.pair_flops * kv_tokens
        moved = self.model.weight_bytes + self.model.bytes_per_token * kv_tokens
        return max(moved / self._memory, flops / self._flops) + self.decode_overhead_s

    def device_tokens(self, fraction: float = 0.88) -> int:
        """Tokens of KV that fit beside the weights in `fraction` of the GPUs' memory (SGLang's --mem-fraction-static). 0 = none."""
        return max(0, int((self.gpu.memory_bytes * fraction * self.tp - self.model.weight_bytes) / self.bytes_per_token))


def preset(name: str, tp: int = 1) -> Roofline:
    """The roofline of "model@gpu", for instance "qwen3-14b@h100". Raises UsageError for unknown names and models that do not fit."""
    model, _, gpu = name.partition("@")
    if model not in MODELS or gpu not in GPUS:
        models, gpus = ", ".join(MODELS), ", ".join(GPUS)
        raise UsageError(f"model preset {name[:60]!r}: expected MODEL@GPU with MODEL one of {models} and GPU one of {gpus}")
    if not 1 <= tp <= 64:
        raise UsageError(f"tp = {tp}: expected 1 to 64 GPUs")
    timing = Roofline(MODELS[model], GPUS[gpu], tp)
    if timing.device_tokens() < 1024:
        raise UsageError(f"model preset {name!r} with tp = {tp}: the weights leave no room for KV; raise tp")
    return timing
