"""Least recently used over a trace by kvcache-simulator's C++ core and by libcachesim, for `bench_replay`.

    python peers_replay.py FOLDER SIZE,SIZE,..        in an environment that has them; nothing of this project is imported

FOLDER has ids.u32 (blocks of all requests, one after the other), tokens.u16 (ones), ends.u32 (where each request ends). Prints JSON per
program that is there: CPU seconds for the first size and for all, and hits per size. Reading the files counts, making them does not.
"""

import json
import resource
import struct
import subprocess
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def kvcache_simulator(folder: Path, sizes: Sequence[int]) -> dict[str, Any]:
    """The second half of the requests is measured, as its command line does."""
    from kvcache_sim.cpp_backend import ensure_cpp_simulator

    binary = str(ensure_cpp_simulator())
    ids, ends = (folder / "ids.u32").stat().st_size // 4, (folder / "ends.u32").stat().st_size // 4

    def run(some: Sequence[int]) -> tuple[float, dict[str, Any]]:
        command = [
            binary, "--policy", "batch", "--ids", str(folder / "ids.u32"), "--tokens", str(folder / "tokens.u16"), "--request-ends",
            str(folder / "ends.u32"), "--request-count", str(ends), "--total-blocks", str(ids), "--warmup-requests", str(ends // 2),
            "--capacities", ",".join(map(str, some)), "--policies", "lru",
        ]
        start = child_s()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return child_s() - start, json.loads(done.stdout)

    one, _ = run(sizes[:1])
    every, result = run(sizes)
    # A size that never fills up before the measured half is reported as such, without hits.
    hits = [point["lru"]["hitTokens"] if point["lru"]["measurementStartRequest"] != -2 else None for point in result["points"]]
    return {"one_s": one, "all_s": every, "hits": hits}


def libcachesim(folder: Path, sizes: Sequence[int]) -> dict[str, Any]:
    """All requests are measured, every block one request."""
    import libcachesim as lib

    ids = array("I", (folder / "ids.u32").read_bytes())
    trace = folder / "ids.oracle"
    trace.write_bytes(b"".join(struct.pack("<IQIq", n, block, 1, -1) for n, block in enumerate(ids)))
    reader = lib.TraceReader(
        str(trace), trace_type=lib.TraceType.ORACLE_GENERAL_TRACE, reader_init_params=lib.ReaderInitParam(ignore_obj_size=True),
    )
    times, hits = list[float](), list[int]()
    for size in sizes:
        reader.reset()
        cache = lib.LRU(size)
        start = time.process_time()
        missed, _ = cache.process_trace(reader)
        times.append(time.process_time() - start)
        hits.append(round((1 - missed) * len(ids)))
    return {"one_s": times[0], "all_s": sum(times), "hits": hits}


def child_s() -> float:
    """CPU time of processes that have ended, s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Whatever is installed."""
    folder, sizes = Path(sys.argv[1]), [int(size) for size in sys.argv[2].split(",")]
    found: dict[str, Any] = {}
    for measure in (kvcache_simulator, libcachesim):
        try:
            found[measure.__name__] = measure(folder, sizes)
        except ImportError:
            continue
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
