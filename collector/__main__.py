"""`python -m collector`: the collector without the rest of the command line."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from collector.flight import leave
from collector.service import DEFAULT_LISTEN, parse_pair, run_collector, stop_on_signals
from pbkv.errors import PbkvError


def main() -> int:
    """Collect until SIGINT or SIGTERM. Prints one JSON line when ready and one at the end; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m collector", description="Store the event stream of PBKV servers and serve reads.")
    parser.add_argument("--connect", action="append", required=True, metavar="EVENTS,REPLAY", help="endpoints of one server; repeatable")
    parser.add_argument("--db", type=Path, required=True, help=".duckdb file, made when missing")
    parser.add_argument("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help="where readers connect; port 0 takes a free one")
    parser.add_argument("--state-dir", type=Path, default=None, help="folder of the token file")
    args = parser.parse_args()
    stop = stop_on_signals()
    try:
        _print(run_collector([parse_pair(p) for p in args.connect], args.db, args.listen, args.state_dir, _print, stop))
    except PbkvError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(leave(main()))
