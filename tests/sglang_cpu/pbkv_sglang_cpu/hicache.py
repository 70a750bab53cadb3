"""HiCache with both tiers in CPU memory, and latent attention: a general SGLang plugin, inert unless SGLANG_USE_CPU_ENGINE=1.

SGLang calls `register` in each of its processes (entry point group `sglang.srt.plugins`).
"""

import os
from typing import Any


def _allocate_pageable(
    dims: tuple[int, ...], dtype: Any, device: str, pin_memory: bool, allocator: Any, registration_granularity_bytes: int | None = None
) -> Any:
    """Host pool memory without pinning: there is no CUDA driver to register it with."""
    return allocator.allocate(dims, dtype=dtype, device=device)


def register() -> None:
    """Give the host pools a copy routine and an allocator that work without an accelerator, and models with latent attention a way."""
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        return
    from sgl_kernel.kvcacheio import transfer_kv_direct
    from sglang.srt.mem_cache.pool_host import common, mha, mla

    for pool in (mha, mla):
        setattr(pool, "transfer_kv_direct", transfer_kv_direct)  # noqa: B010 - SGLang imports it only on an accelerator
    common.ALLOC_MEMORY_FUNCS["cpu"] = _allocate_pageable
    _attend_to_latents()


def _attend_to_latents() -> None:
    """The torch backend reads what the pool holds, which is latents; SGLang's choice for it would hand it keys and values per head."""
    from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry
    from sglang.srt.models.deepseek_common.attention_forward_methods.forward_methods import AttnForwardMethod

    def absorbed(attention: Any, batch: Any) -> Any:
        return AttnForwardMethod.MLA

    AttentionBackendRegistry.register("torch_native", absorbed)
