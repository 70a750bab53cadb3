"""Events per second from the socket into a DuckDB file, against a bare Arrow insert of the same columns in the same run.

    python -m tests.benchmarks.bench_ingest [--quick] [--json]
    -> {"records_per_s", "ratio_to_raw", "p99_commit_ms", ...}

Messages carry 1,000 records of all kinds in the mix of a busy server. The publisher runs here, the collector in a process of its own;
the clock stops when the last message is committed. The bare insert gets ready-made Arrow tables of batches of the same size.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from collector.batch import build
from collector.ingest import BATCH_BYTES
from collector.pipe import item_bytes
from collector.store import Store
from pbkv.events.publisher import Publisher
from pbkv.events.schema import BY_NAME, EVENT_KINDS
from pbkv.events.wire import Header, Message, decode, encode
from tests.support.collector import CollectorProcess, eventually
from tests.support.stream import record

RECORDS = 1000
#: Records of each kind in a message, of RECORDS.
MIX = {
    "page": 380, "prediction": 320, "node_score": 130, "eviction": 60, "prefetch": 40, "batch": 25, "pcie_window": 15, "workflow": 10,
    "call": 15, "occupancy": 4, "knob": 1,
}


def payloads(count: int) -> list[bytes]:
    """`count` messages of RECORDS records with the synthetic workload's values, in sequence."""
    assert sum(MIX.values()) == RECORDS
    assert set(MIX) == set(EVENT_KINDS)
    rows: dict[str, list[np.ndarray]] = {kind: [] for kind in MIX}
    for payload in record(60, seed=1):
        for kind, table in decode(payload).tables.items():
            if kind in rows:
                rows[kind].append(table)
    source = {kind: itertools.cycle(np.concatenate(tables)) for kind, tables in rows.items()}
    return [_message(seq, source) for seq in range(1, count + 1)]


def _message(seq: int, source: dict[str, Any]) -> bytes:
    sections, first = [], 0
    for name, count in MIX.items():
        table = np.array([next(source[name]) for _ in range(count)], BY_NAME[name].dtype)
        table["idx"] = np.arange(first, first + count)
        sections.append((BY_NAME[name], count, table.tobytes()))
        first += count
    wall = 1_767_268_800_000_000_000 + seq * 20_000_000
    return encode(Header("bench", 1, 0, seq, seq, seq, wall, 0, RECORDS), sections)


def through_the_collector(messages: list[bytes], folder: Path) -> dict[str, float]:
    """Seconds from the first message offered to the last one committed, and the commit times."""
    publisher = Publisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", queue_messages=1 << 20, queue_bytes=1 << 31, replay_bytes=1 << 31)
    last = Header("bench", 1, 0, 0, 0, 0, 0, 0, 0, 2)
    with CollectorProcess([(publisher.endpoint, publisher.replay_endpoint)], folder / "events.duckdb") as collector:
        publisher.start(lambda seq: Header(last.server, 1, 0, seq, 0, 0, 0, 0, 0, 2), list)
        with collector.reader() as reader:
            eventually(lambda: reader.status()["sources"], "the collector has joined")
            start = time.monotonic()
            for seq, payload in enumerate(messages, 1):
                publisher.offer(seq, payload)
            while _stored(reader.status()) < len(messages):
                time.sleep(0.02)
            seconds = time.monotonic() - start
            status = reader.status()
        assert status["lost"] == 0
        assert sum(status["rows"][k] for k in EVENT_KINDS) == RECORDS * len(messages)
        collector.stop()
    publisher.close()
    return {"seconds": seconds, "commits": status["commits"], "p50": status["commit_ms_p50"], "p99": status["commit_ms_p99"]}


def _stored(status: dict[str, Any]) -> int:
    return max((s["seq"] for s in status["sources"]), default=0) if status["commits"] else 0


def raw_insert(messages: list[bytes], folder: Path) -> float:
    """Seconds to insert and commit the same columns as ready-made Arrow tables."""
    store = Store(folder / "bare.duckdb")
    batches = [
        build(part, lambda key: 1, lambda src, name: True, 0) for part in _batches([decode(p) for p in messages])
    ]
    with store.cursor() as db:
        start = time.monotonic()
        for batch in batches:
            db.execute("BEGIN")
            for name, table in batch.tables.items():
                db.register("incoming", table)
                db.execute(f"INSERT INTO raw.{name} SELECT * FROM incoming")
            db.execute("COMMIT")
        seconds = time.monotonic() - start
    store.close()
    return seconds


def _batches(messages: list[Message]) -> list[list[Message]]:
    per_batch = max(1, BATCH_BYTES // item_bytes(messages[0]))
    return [messages[n : n + per_batch] for n in range(0, len(messages), per_batch)]


def run(quick: bool) -> dict[str, float]:
    """Both measurements; numbers as printed."""
    messages = payloads(300 if quick else 3000)
    with tempfile.TemporaryDirectory() as folder:
        raw = raw_insert(messages, Path(folder))
        ours = through_the_collector(messages, Path(folder))
    records = RECORDS * len(messages)
    return {
        "records": records,
        "records_per_s": round(records / ours["seconds"]),
        "raw_records_per_s": round(records / raw),
        "ratio_to_raw": round(raw / ours["seconds"], 3),
        "p50_commit_ms": round(ours["p50"], 1),
        "p99_commit_ms": round(ours["p99"], 1),
        "commits": int(ours["commits"]),
        "wire_bytes_per_record": round(sum(map(len, messages)) / records, 1),
    }


def main() -> None:
    """Print the result as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300,000 records instead of 3,000,000")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = run(args.quick)
    sys.stdout.write(json.dumps(result) + "\n" if args.json else "".join(f"{k:24} {v:>14,}\n" for k, v in result.items()))


if __name__ == "__main__":
    main()
