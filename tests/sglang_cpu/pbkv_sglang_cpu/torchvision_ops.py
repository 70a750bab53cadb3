"""Lets torchvision's CUDA wheel be imported beside a CPU build of torch.

The wheel's C++ operators do not load there, and its Python then registers a meta kernel for an operator nobody declared.
torch calls `declare` when it is imported (entry point group `torch.backends`). Where real operators exist nothing is declared.
"""

from typing import Any

_OPERATORS = ("nms", "qnms")
#: A torch.library.Library takes its declarations back when it is collected, so it must stay referenced.
_library: list[Any] = []


def declare() -> None:
    """Declare the schemas of torchvision's box operators; nothing implements them."""
    import torch

    if torch.version.cuda is not None or torch.version.hip is not None or _library:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _library.append(library)
