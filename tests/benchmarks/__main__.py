"""All benchmarks, one after the other: `python -m tests.benchmarks [--quick]`. Each can be run alone as a module."""

import runpy
import sys

BENCHMARKS = (
    "bench_writer", "bench_evict", "bench_stock", "bench_scores", "bench_predict", "bench_scheduler_predict",
    "bench_engine", "bench_replay", "bench_grid", "bench_whatif_honesty", "bench_whatif_server", "bench_ingest",
    "bench_screen", "bench_store", "bench_lake", "bench_faults",
)


def main() -> None:
    """Run them with the arguments given."""
    for name in BENCHMARKS:
        print(f"== {name}", flush=True)
        sys.argv = [name, *sys.argv[1:]]
        runpy.run_module(f"tests.benchmarks.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
