"""Stock SGLang beside PBKV on one model: hit rate, TTFT, calls per second, and the plugin's own time per scheduler step."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pbkv.errors import UsageError
from tests.benchmarks import stock_server
from tests.gpu.models import shape_only
from tests.gpu.servers import Servers
from tests.support.recorded import live_tokens, order, recorded

#: Workflows at a time, calls under way at most, calls of a workflow. SHARE: of the live workflows' tokens, on the device.
CONCURRENCY, RUNNING, MAX_CALLS, SHARE = 12, 8, 24, 0.4
STOCK, POLICIES = ("SGLang lru, Rust core",), ("he", "first_use")


def vocabulary(model: Path) -> int:
    """Ids that prompts may have: below the model's, without the last ones, which are often special. Raises UsageError."""
    try:
        config = json.loads((model / "config.json").read_text())
        size = int({**config, **config.get("text_config", {})}["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        fault = f"no config.json with a vocab_size ({type(error).__name__})"
        raise UsageError(f"--model {str(model)!r}: {fault}; name the folder of a model") from None
    return max(2, min(size - 1, 32_000) * 9 // 10)


def run(folder: Path, model: Path | None, calls: int, device_tokens: int, link: float, flags: Sequence[str] = ()) -> dict[str, Any]:
    """Rows of the configurations on `model`, None = the shape of a real one with random weights; 0 device tokens = SHARE."""
    path = model or shape_only(folder / "shape")
    servers = Servers(path, dummy=model is None, running=RUNNING, link_bytes_per_s=link, flags=tuple(flags))
    source, workflows = recorded("hyperagent", "private", max_calls=MAX_CALLS)
    steps = list(itertools.takewhile(lambda step: step.number <= calls, order(workflows, CONCURRENCY, RUNNING)))
    size = device_tokens or int(CONCURRENCY * live_tokens(workflows) * SHARE)
    scale = stock_server.Scale(1, RUNNING, vocabulary(path))
    served = stock_server.compare(servers.start, steps, size, scale, STOCK, POLICIES)
    rows = {name: found.as_json() for name, found in served.items()}
    return {**rows, "workload": source, "device tokens": size, "model": "random weights" if model is None else model.name, **gains(rows)}


def gains(rows: dict[str, dict[str, float]]) -> dict[str, float]:
    """TTFT of stock over that of each policy."""
    base = rows[STOCK[0]]["ttft_ms_mean"]
    return {f"TTFT gain of {name}": round(base / row["ttft_ms_mean"], 2) for name, row in rows.items() if name != STOCK[0]}
