"""kill -9 of the collector at 200 random moments under load, of the server 20 times, and a replay buffer that is overrun.

    python -m tests.benchmarks.bench_faults [--quick] [--json]

Every part ends with an audit of the database: each message stored completely and once, or recorded as lost. A failed audit is a failure of
the run.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.support.faults import Books, kill_collector, kill_server, overrun


def run(quick: bool) -> dict[str, Books]:
    """All parts."""
    results: dict[str, Books] = {}
    for name, part in (
        ("collector killed", lambda folder: kill_collector(folder, 10 if quick else 200)),
        ("server killed", lambda folder: kill_server(folder, 3 if quick else 20)),
        ("replay buffer overrun", overrun),
    ):
        with tempfile.TemporaryDirectory() as folder:
            sys.stderr.write(f"{name} ...\n")
            results[name] = part(Path(folder))
    return results


def main() -> None:
    """Print the result as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 and 3 kills")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = run(args.quick)
    if args.json:
        sys.stdout.write(json.dumps({name: asdict(books) for name, books in results.items()}) + "\n")
        return
    for name, b in results.items():
        text = f"{b.messages:>9,} messages stored once, {b.lost:>6,} recorded as lost, {b.records:>10,} records, {b.epochs} epochs"
        sys.stdout.write(f"{name:24}{text}, {b.seconds:.0f} s\n")


if __name__ == "__main__":
    main()
