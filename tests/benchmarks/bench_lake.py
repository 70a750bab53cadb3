"""A fleet's lake: collectors that write at once, compaction, and the first screen over all of it.

    python -m tests.benchmarks.bench_lake [--quick] [--json]

PostgreSQL, two writing processes and the reader share this machine. Each writer commits batches of mixed messages as fast as it can, as its
own server, through the collector's store for lakes (no socket).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from collector import client
from collector.lake import Lake, LakeStore, compact
from collector.roller import Roller
from collector.views.overview import load_overview
from pbkv.events.wire import HEADER, Header, decode
from tests.benchmarks.bench_ingest import DISTINCT, RECORDS, message_head, payloads
from tests.support.postgres import Postgres

WRITERS = 2
_BATCH = 250


def write(source: str, number: int, seconds: float) -> dict[str, Any]:
    """One writer: records stored and the times of its commits, ms."""
    bodies = [p[HEADER.size :] for p in payloads(DISTINCT)]
    store = LakeStore(source, None)
    times: list[float] = []
    seq, end, start = 0, time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < end:
        items = []
        for _ in range(_BATCH):
            seq += 1
            head = message_head(Header(f"gpu{number}", number, 0, seq, seq, seq, time.time_ns(), 0, RECORDS))
            items.append(decode(head + bodies[seq % DISTINCT]))
        begin = time.monotonic()
        store.commit(items)
        times.append((time.monotonic() - begin) * 1e3)
    took = time.monotonic() - start
    Roller(store).roll(store.stored(), minutes=True)
    store.close()
    return {"records": seq * RECORDS, "seconds": took, "commit_ms": times}


def run(seconds: float) -> dict[str, Any]:
    """All parts; numbers as printed."""
    with Postgres() as postgres, tempfile.TemporaryDirectory() as folder:
        source, data = postgres.new(), Path(folder) / "data"
        LakeStore(source, data).close()
        command = [sys.executable, "-m", "tests.benchmarks.bench_lake", "--source", source, "--seconds", str(seconds), "--writer"]
        writers = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE) for n in range(1, WRITERS + 1)]
        parts = [json.loads(w.communicate()[0]) for w in writers]
        commits = sorted(ms for p in parts for ms in p["commit_ms"])
        before = _files(data)
        start = time.monotonic()
        lake = Lake(source, data=None, read_only=False)
        compact(lake.connection, keep_minutes=0)
        lake.close()
        compacted = time.monotonic() - start
        screens = _screens(source)
        records = sum(p["records"] for p in parts)
        return {
            "records": records, "records_per_s": round(sum(p["records"] / p["seconds"] for p in parts)),
            "commit_p50_ms": round(commits[len(commits) // 2], 1), "commit_max_ms": round(commits[-1], 1), "commits": len(commits),
            "files": before, "files_compacted": _files(data), "compaction_s": round(compacted, 1),
            "bytes_per_record": round(sum(f.stat().st_size for f in data.rglob("*.parquet")) / records, 1),
            "screen_worst_ms": round(max(screens), 1),
        }


def _files(data: Path) -> int:
    return len(list(data.rglob("*.parquet")))


def _screens(source: str) -> list[float]:
    times: list[float] = []
    with client.open(source) as reader:
        for n in range(1, WRITERS + 1):
            start = time.monotonic()
            load_overview(reader, 60.0, f"gpu{n}")
            times.append((time.monotonic() - start) * 1e3)
    return times


def main() -> None:
    """Print the result as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three seconds instead of 20")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--writer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--source", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=20.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.writer:
        sys.stdout.write(json.dumps(write(args.source, args.writer, args.seconds)))
        return
    result = run(3.0 if args.quick else args.seconds)
    sys.stdout.write(json.dumps(result) + "\n" if args.json else "".join(f"{k:20} {v:>14,}\n" for k, v in result.items()))


if __name__ == "__main__":
    main()
