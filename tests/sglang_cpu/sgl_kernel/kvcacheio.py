"""HiCache copies between tiers as tensor indexing: io backend `direct`, layout `layer_first`."""

from collections.abc import Callable, Sequence
from typing import NoReturn

import torch

from sgl_kernel import missing


def transfer_kv_direct(
    src_layers: Sequence[torch.Tensor], dst_layers: Sequence[torch.Tensor], src_indices: torch.Tensor, dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    """Copy rows `src_indices` of each source layer to rows `dst_indices` of its destination. Indices are token slots."""
    for src, dst in zip(src_layers, dst_layers, strict=True):
        dst[dst_indices.to(dst.device)] = src[src_indices.to(src.device)].to(dst.device)


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(f"kvcacheio.{name}")
