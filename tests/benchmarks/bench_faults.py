"""kill -9 of the collector at 200 random moments under load, of the server 20 times; a replay buffer that is overrun; 100,000 mutated
messages.

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
from tests.support.fuzz import Fuzzed, fuzz


def run(quick: bool) -> dict[str, Books | Fuzzed]:
    """All parts."""
    results: dict[str, Books | Fuzzed] = {}
    for name, part in (
        ("collector killed", lambda folder: kill_collector(folder, 10 if quick else 200)),
        ("killed while archiving", lambda folder: kill_collector(folder, 3 if quick else 60, archiving=True)),
        ("server killed", lambda folder: kill_server(folder, 3 if quick else 20)),
        ("replay buffer overrun", overrun),
        ("mutated messages", lambda folder: fuzz(folder, 3000 if quick else 100_000)),
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
    for name, found in results.items():
        sys.stdout.write(f"{name:24}" + ", ".join(f"{what} {value:,.0f}" for what, value in asdict(found).items()) + "\n")


if __name__ == "__main__":
    main()
