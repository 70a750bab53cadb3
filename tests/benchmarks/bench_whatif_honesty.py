"""Forecast honesty: random changes of knobs and pools, forecast from the log of a run, then measured by running the engine at them.

    python -m tests.benchmarks.bench_whatif_honesty [--quick] [--json]
    -> {"changes", "inside": {figure: share}, "certain": {figure: n}, "wrong_sign": {figure: n}, "error", "half_width", "change", ...}

A run of the embedded engine is recorded through the event stream into a DuckDB file: the whole of it, and the stretch from 40 to 80 % of
it, where the cache at the start comes from a snapshot and a warm-up, and calls under way at the end are missing. From the file alone other
settings are forecast. Then the engine runs the same workload at each of them from the beginning, and the same calls are measured. `inside`:
the truth lies in the stated interval; `wrong_sign`: the interval excludes the present, and the truth lies on its other side.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pbkv.engine.play import PlaySettings
from pbkv.engine.settings import EngineSettings
from tests.engine.workloads import Mixed
from tests.whatif.honesty import COMPARED, Trial, trials

BASES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"page_size": 16, "device_tokens": 3000}, {"policy": "he"}),
    ({"page_size": 16, "device_tokens": 2500, "host_tokens": 6000}, {"policy": "lae", "prefetch": "conservative"}),
    ({"page_size": 4, "device_tokens": 2500, "host_tokens": 5000, "write_policy": "write_back"}, {"policy": "lru", "prefetch": "off"}),
    ({"page_size": 16, "device_tokens": 2000, "host_tokens": 4000}, {"policy": "first_use", "prefetch": "aggressive"}),
    ({"page_size": 1, "device_tokens": 4000, "chunk_tokens": 512}, {"policy": "kvflow"}),
)
WINDOWS = (None, (0.4, 0.8))


def measure(changes: int, workflows: int, folder: Path, seed: int = 0) -> list[tuple[str, Trial]]:
    """`changes` in all, spread over the bases and windows."""
    rng, found = random.Random(seed), list[tuple[str, Trial]]()
    parts = [(base, window) for window in WINDOWS for base in BASES]
    for n, ((settings, knobs), window) in enumerate(parts):
        count = changes * (n + 1) // len(parts) - changes * n // len(parts)
        how = PlaySettings(concurrency=rng.choice((10, 12, 16)), workflows=workflows, seed=seed)
        engine = EngineSettings(**{"max_running": 8, **settings})
        made = trials(engine, knobs, Mixed(scale=2.0), how, folder, count, 1000 * seed + n, window=window)
        found += [("all of it" if window is None else "a stretch", trial) for trial in made]
    return found


def summary(found: list[tuple[str, Trial]]) -> dict[str, Any]:
    """By what was recorded and figure."""
    tables: dict[str, Any] = {}
    for what in dict.fromkeys(what for what, _ in found):
        tables[what] = dict(_rows([trial for each, trial in found if each == what]))
    every = [trial for _, trial in found]
    return {
        "changes": len(every) // len(COMPARED), "inside": sum(t.inside for t in every) / len(every), "forecasts": len(every),
        "certain": sum(t.estimate.certain for t in every), "wrong_sign": sum(t.wrong_sign for t in every), "tables": tables,
    }


def _rows(found: list[Trial]) -> Iterator[tuple[str, dict[str, float]]]:
    for name in COMPARED:
        mine = [trial for trial in found if trial.figure == name]
        if mine:
            yield name, {
                "forecasts": len(mine), "inside": sum(t.inside for t in mine) / len(mine), "certain": sum(t.estimate.certain for t in mine),
                "wrong_sign": sum(t.wrong_sign for t in mine), "error": float(np.mean([abs(t.truth - t.estimate.value) for t in mine])),
                "half_width": float(np.mean([(t.estimate.high - t.estimate.low) / 2 for t in mine])),
                "change": float(np.mean([abs(t.truth - t.estimate.present) for t in mine])),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = summary(measure(10 if args.quick else 50, 60 if args.quick else 250, Path(folder), args.seed))
    if args.json:
        print(json.dumps(result))
        return
    for what, table in result.pop("tables").items():
        print(f"{what} recorded", file=sys.stdout)
        for name, row in table.items():
            print(f"  {name:12}" + "  ".join(f"{column} {value:.4g}" for column, value in row.items()))
    print(", ".join(f"{name} {value:.4g}" for name, value in result.items()))


if __name__ == "__main__":
    main()
