"""HiCache with both tiers in CPU memory: a general SGLang plugin, inert unless SGLANG_USE_CPU_ENGINE=1.

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
    """Give the host pool a copy routine and an allocator that work without an accelerator."""
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        return
    from sgl_kernel.kvcacheio import transfer_kv_direct
    from sglang.srt.mem_cache.pool_host import common, mha

    setattr(mha, "transfer_kv_direct", transfer_kv_direct)  # noqa: B010 - SGLang imports it only on an accelerator
    common.ALLOC_MEMORY_FUNCS["cpu"] = _allocate_pageable
