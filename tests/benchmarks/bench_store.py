"""A large store: size on disk, time to open, and the first screen's questions over short and long ranges.

    python -m tests.benchmarks.bench_store [--quick] [--records 100000000] [--json]

Fills a file through the real store and its upkeep (no socket) with messages of 1,000 mixed records, one every 36 ms of the server's time,
so that 100 M records are an hour; then opens it as a reader of a file does.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from collector import client
from collector.retention import Retention
from collector.store import Store
from collector.upkeep import CHECKPOINT_BYTES, Upkeep
from collector.views.library import ALL
from collector.views.scope import find_scope
from pbkv.events.wire import HEADER, Header, decode
from tests.benchmarks.bench_ingest import DISTINCT, RECORDS, message_head, payloads

#: Records in one message per 36 ms, and messages in one transaction.
_STEP_NS, _BATCH = 36_000_000, 250
WINDOWS_S = (60.0, 900.0, 3600.0, 86_400.0)


def fill(path: Path, records: int) -> float:
    """Write the file; returns seconds."""
    bodies = [p[HEADER.size :] for p in payloads(DISTINCT)]
    store = Store(path)
    upkeep = Upkeep(store, Retention(keep_bytes=None))
    start, seq, now = time.monotonic(), 0, time.time_ns()
    while seq * RECORDS < records:
        items = []
        for _ in range(_BATCH):
            seq += 1
            head = message_head(Header("bench", 1, 0, seq, seq, seq, now + seq * _STEP_NS, 0, RECORDS))
            items.append(decode(head + bodies[seq % DISTINCT]))
        store.commit(items)
        if seq % (_BATCH * 8) == 0:
            upkeep._roller.roll(store.stored(), minutes=seq % (_BATCH * 64) == 0)
            store.checkpoint(CHECKPOINT_BYTES)
            sys.stderr.write(f"\r{seq * RECORDS / records:6.1%}")
    upkeep._roller.roll(store.stored(), minutes=True)
    store.close()
    sys.stderr.write("\r      \r")
    return time.monotonic() - start


def ask(path: Path) -> dict[str, Any]:
    """Milliseconds to open and of each question, worst of three, by window; the first time of each window separately."""
    start = time.monotonic()
    reader = client.open(str(path))
    opened = (time.monotonic() - start) * 1e3
    answers: dict[str, dict[str, float]] = {}
    with reader:
        for window in WINDOWS_S:
            times: dict[str, float] = {}
            for _ in range(3):
                start = time.monotonic()
                scope = find_scope(reader, window)
                times["scope"] = max(times.get("scope", 0.0), (time.monotonic() - start) * 1e3)
                for query in ALL:
                    start = time.monotonic()
                    query.run(reader, scope.params)
                    times[query.name] = max(times.get(query.name, 0.0), (time.monotonic() - start) * 1e3)
            answers[f"{window:g} s"] = {name: round(ms, 1) for name, ms in times.items()}
    return {"open_ms": round(opened, 1), "worst_ms": answers}


def run(records: int) -> dict[str, Any]:
    """Fill and ask; numbers as printed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.duckdb"
        seconds = fill(path, records)
        size = path.stat().st_size
        return {
            "records": records, "fill_s": round(seconds, 1), "records_per_s": round(records / seconds), "bytes": size,
            "bytes_per_record": round(size / records, 1), **ask(path),
        }


def main() -> None:
    """Print the result as text or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 M records")
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = run(3_000_000 if args.quick else args.records)
    if args.json:
        sys.stdout.write(json.dumps(result) + "\n")
        return
    for name, value in result.items():
        if name != "worst_ms":
            sys.stdout.write(f"{name:18} {value:>14,}\n")
    for window, times in result["worst_ms"].items():
        slowest = max(times, key=lambda name: times[name])
        sys.stdout.write(f"{window:>9}: slowest {slowest} {times[slowest]:,.1f} ms; all together {sum(times.values()):,.1f} ms\n")


if __name__ == "__main__":
    main()
