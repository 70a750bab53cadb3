"""What a run on a GPU needs, told apart from what is there."""

import importlib.util
import platform
from importlib.metadata import entry_points, version
from typing import Any

from pbkv.sglang.compat import REQUIRED, problem


def missing() -> str | None:
    """One sentence that names the first thing that is missing and what to do, or None."""
    if importlib.util.find_spec("torch") is None:
        return f"torch is not installed in this environment; install sglang=={REQUIRED}"
    import torch

    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device; run this on a machine with one, with a build of torch for it"
    if reason := problem():
        return reason
    if not any(point.name == "pbkv" for point in entry_points(group="sglang.srt.plugins")):
        return "pbkv is not installed in this environment, so SGLang would not find the plugin; pip install this source tree"
    return None


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    import torch

    device = torch.cuda.get_device_properties(0)
    return {
        "gpu": device.name, "gpus": torch.cuda.device_count(), "gpu_gib": round(device.total_memory / 2**30, 1), "cuda": torch.version.cuda,
        "torch": torch.__version__, "sglang": version("sglang"), "python": platform.python_version(), "system": platform.platform(),
    }

