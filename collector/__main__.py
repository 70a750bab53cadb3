"""`python -m collector`: the collector without the rest of the command line."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from collector.flight import leave
from collector.options import Options, parse_duration, parse_size
from collector.retention import Retention
from collector.service import DEFAULT_LISTEN, parse_pair, run_collector, stop_on_signals
from pbkv.errors import PbkvError


def main() -> int:
    """Collect until SIGINT or SIGTERM. Prints one JSON line when ready and one at the end; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m collector", description="Store the event stream of PBKV servers and serve reads.")
    parser.add_argument("--connect", action="append", required=True, metavar="EVENTS,REPLAY", help="endpoints of one server; repeatable")
    parser.add_argument("--db", type=Path, required=True, help=".duckdb file, made when missing")
    parser.add_argument("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help="where readers connect; port 0 takes a free one")
    parser.add_argument("--state-dir", type=Path, default=None, help="folder of the token file")
    parser.add_argument("--archive", type=Path, default=None, help="folder that old events go to")
    parser.add_argument("--keep", default=None, metavar="TIME", help="events older than this leave the database")
    parser.add_argument("--keep-bytes", default="32GiB", metavar="SIZE", help="the oldest events leave a database larger than this")
    parser.add_argument("--metrics", default="", metavar="HOST:PORT", help="serve /metrics there")
    args = parser.parse_args()
    stop = stop_on_signals()
    try:
        pairs = [parse_pair(p) for p in args.connect]
        _print(run_collector(pairs, args.db, args.listen, args.state_dir, _print, stop, _options(args)))
    except PbkvError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _options(args: argparse.Namespace) -> Options:
    keep_s = parse_duration(args.keep, "--keep") if args.keep else None
    return Options(Retention(args.archive, keep_s, parse_size(args.keep_bytes, "--keep-bytes")), metrics=args.metrics)


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(leave(main()))
