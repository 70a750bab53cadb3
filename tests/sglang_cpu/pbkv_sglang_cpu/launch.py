"""The command and environment that start a SGLang server on a CPU-only machine, with HiCache in two small pools."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

#: What HiCache needs without an accelerator: copies by tensor indexing, one buffer per layer.
_HICACHE = ("--enable-hierarchical-cache", "--hicache-io-backend", "direct", "--hicache-mem-layout", "layer_first")
_CPU = (
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--dtype", "float32",
    "--disable-cuda-graph", "--skip-server-warmup", "--sleep-on-idle",
)


def server_command(
    model: str | Path,
    port: int,
    *,
    plugin: bool = False,
    config: str | Path | None = None,
    max_total_tokens: int = 4096,
    hicache_ratio: float | None = 2.0,
    page_size: int = 16,
    context_length: int = 4096,
    chunked_prefill_size: int = 512,
    max_running_requests: int = 8,
    tp: int = 1,
    threads: int = 1,
    extra: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """(argv, environment) of a server of `model` on 127.0.0.1:`port`.

    `plugin` selects the pbkv cache, with `config` as its PBKV_CONFIG file. `max_total_tokens` is the device pool in tokens; the host
    pool is `hicache_ratio` times that, None = no host pool. `extra` flags come last, so they win. `env` is added to the environment.
    """
    argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(model), "--host", "127.0.0.1", "--port", str(port), *_CPU]
    sizes = {
        "--page-size": page_size, "--max-total-tokens": max_total_tokens, "--max-running-requests": max_running_requests,
        "--context-length": context_length, "--chunked-prefill-size": chunked_prefill_size,
    }
    argv += [text for name, value in sizes.items() for text in (name, str(value))]
    argv += ["--enable-metrics", "--enable-cache-report"]
    if hicache_ratio is not None:
        argv += [*_HICACHE, "--hicache-ratio", str(hicache_ratio)]
    if plugin:
        argv += ["--radix-cache-backend", "pbkv"]
    if tp > 1:
        argv += ["--tp", str(tp)]
    return [*argv, *extra], _environment(plugin, config, tp, threads, env or {})


def _environment(plugin: bool, config: str | Path | None, tp: int, threads: int, more: Mapping[str, str]) -> dict[str, str]:
    environment = {**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)}
    environment.pop("PBKV_CONFIG", None)
    if tp > 1:
        # One core per rank: without it SGLang wants one NUMA node per rank.
        environment["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(str(core) for core in range(tp))
    if plugin and config is not None:
        environment["PBKV_CONFIG"] = str(config)
    return {**environment, **more}
