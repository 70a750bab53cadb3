"""Stand-in for SGLang's CPU kernels, enough for dense text models.

SGLang takes its torch-native path wherever the CPU lacks AMX; what is left are names it imports unconditionally.
One of them is really called and is implemented here; any other raises when it is called, never when it is imported.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import torch


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor, req_to_token: torch.Tensor, start_offset: torch.Tensor, end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor, pool_len: int,
) -> None:
    """Write each request's new slots, taken in order from `out_cache_loc`, into its row between its two offsets."""
    slots = out_cache_loc.to(req_to_token.dtype)
    rows = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True)
    taken = 0
    for row, start, end in rows:
        req_to_token[row, start:end] = slots[taken : taken + end - start]
        taken += end - start


def missing(name: str) -> Callable[..., NoReturn]:
    """A function that says it has no stand-in."""

    def call(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"sgl_kernel stand-in: {name} does not exist on a CPU-only machine; run this model or option on a GPU")

    call.__name__ = name
    return call


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(name)
