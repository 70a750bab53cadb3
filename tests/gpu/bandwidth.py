"""Bandwidth between pinned host memory and the device: what `link_bytes_per_s` should be, and what both directions share."""

from collections.abc import Callable
from typing import Any

#: Bytes of one copy, and of one page of a 32-layer cache's layer (64 tokens, 8 KV heads, 128 wide, 2 bytes), copied one by one.
BLOCK, PAGE = 256 << 20, 64 * 8 * 128 * 2
ROUNDS = 20


def run() -> dict[str, Any]:
    """GB/s (10^9 bytes) host to device and device to host, alone and at the same time, in blocks and in pages."""
    import torch

    host, device = torch.empty(BLOCK, dtype=torch.uint8, pin_memory=True), torch.empty(BLOCK, dtype=torch.uint8, device="cuda")
    other_host, other_device = torch.empty_like(host, pin_memory=True), torch.empty_like(device)
    up, down = torch.cuda.Stream(), torch.cuda.Stream()

    def load() -> None:
        with torch.cuda.stream(up):
            device.copy_(host, non_blocking=True)

    def store() -> None:
        with torch.cuda.stream(down):
            other_host.copy_(other_device, non_blocking=True)

    def both() -> None:
        load()
        store()

    def pages() -> None:
        with torch.cuda.stream(up):
            for at in range(0, 512 * PAGE, PAGE):
                device[at : at + PAGE].copy_(host[at : at + PAGE], non_blocking=True)

    sizes = {
        "host to device": (load, BLOCK), "device to host": (store, BLOCK), "both at once": (both, 2 * BLOCK),
        "host to device, page by page": (pages, 512 * PAGE),
    }
    rows = {name: {"GB/s": round(size / seconds(work) / 1e9, 2), "bytes": size} for name, (work, size) in sizes.items()}
    return {**rows, "link_bytes_per_s for PBKV_CONFIG": int(rows["host to device"]["GB/s"] * 1e9)}


def seconds(work: Callable[[], None]) -> float:
    """Of one `work`, from the device's idle to its idle; median of ROUNDS."""
    import statistics
    import time

    import torch

    taken: list[float] = []
    for _ in range(ROUNDS + 2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[2:])
