"""Events per second from the socket into a DuckDB file, against a bare Arrow insert of the same columns in the same run.

    python -m tests.benchmarks.bench_ingest [--quick] [--seconds 60] [--json]
    -> {"records_per_s", "ratio_to_raw", "p99_commit_ms", "paced": {...}, ...}

Messages carry 1,000 records of all kinds in the mix of a busy server. Publisher and measurement run here, the collector in a process
of its own, the readers of the paced part in two more: all on the same cores. The clock stops when the last message is committed. Flat out
the publisher keeps at most WINDOW messages on their way, since it drops what a slower subscriber has no room for; paced it sends RATE
a second while two readers ask for the first screen at 2 Hz. The bare insert gets ready-made Arrow tables in batches of the same
size, with the collector's DuckDB settings.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from collector import client
from collector.batch import build
from collector.pipe import item_bytes
from collector.store import Store
from collector.upkeep import CHECKPOINT_BYTES
from collector.views.overview import load_overview
from pbkv.events.publisher import Publisher
from pbkv.events.schema import BY_NAME, EVENT_KINDS
from pbkv.events.wire import HEADER, Header, Message, decode, encode
from tests.support.collector import CollectorProcess, eventually
from tests.support.stream import record

RECORDS = 1000
#: Records of each kind in a message, of RECORDS.
MIX = {
    "page": 379, "prediction": 320, "node_score": 130, "eviction": 60, "prefetch": 40, "batch": 25, "pcie_window": 15, "workflow": 10,
    "call": 15, "occupancy": 4, "knob": 1, "setting": 1,
}
#: Different messages; they are sent again and again under new sequence numbers and times.
DISTINCT = 500
WINDOW = 1500
#: Messages per second of the paced part: 0.5 M records/s.
RATE = 500
_EPOCH = 1


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
    return encode(_header(seq, time.time_ns()), sections)


def _header(seq: int, wall_ns: int, flags: int = 0) -> Header:
    return Header("bench", _EPOCH, 0, seq, seq, seq, wall_ns, 0, RECORDS if not flags else 0, flags)


class Sender:
    """Publishes messages 1, 2, 3, ... to a collector process."""

    def __init__(self) -> None:
        self._bodies = [payload[HEADER.size :] for payload in payloads(DISTINCT)]
        self.publisher = Publisher(
            "tcp://127.0.0.1:*", "tcp://127.0.0.1:*", queue_messages=2 * WINDOW, queue_bytes=1 << 30, replay_bytes=256 << 20,
        )
        self.seq = 0
        self.dropped = 0

    def start(self) -> None:
        self.publisher.start(lambda seq: _header(seq, time.time_ns(), 2), list)

    def send(self, count: int) -> None:
        for _ in range(count):
            self.seq += 1
            head = message_head(_header(self.seq, time.time_ns()))
            self.dropped += not self.publisher.offer(self.seq, head + self._bodies[self.seq % DISTINCT])


def _sections_at() -> int:
    """Where the header has the number of sections."""
    one = encode(_header(1, 0), [(BY_NAME["page"], 1, BY_NAME["page"].struct.pack(0, 1, 0, 1))])
    none = encode(_header(1, 0), [])
    return next(n for n, (a, b) in enumerate(zip(none, one, strict=False)) if a != b)


_SECTIONS_AT = _sections_at()


def message_head(header: Header) -> bytes:
    """`header` as the first bytes of a message with the sections of `payloads`."""
    head = bytearray(encode(header, []))
    head[_SECTIONS_AT : _SECTIONS_AT + 2] = len(MIX).to_bytes(2, "little")
    return bytes(head)


def flat_out(seconds: float, folder: Path) -> dict[str, float]:
    """Records per second with never more than WINDOW messages on their way."""
    sender = Sender()
    with _collector(sender, folder / "flat.duckdb") as collector, collector.reader() as reader:
        start = time.monotonic()
        stored = 0
        while time.monotonic() < start + seconds:
            sender.send(WINDOW - (sender.seq - stored))
            time.sleep(0.05)
            stored = _stored(reader.status())
        eventually(lambda: _stored(reader.status()) == sender.seq, "everything is stored")
        took = time.monotonic() - start
        return {**_figures(reader.status(), sender, took), "records": RECORDS * sender.seq}


def paced(seconds: float, folder: Path) -> dict[str, Any]:
    """Commit times at RATE messages a second with two readers."""
    sender = Sender()
    with _collector(sender, folder / "paced.duckdb") as collector, collector.reader() as reader:
        command = [sys.executable, "-m", "tests.benchmarks.bench_ingest", "--reader", collector.source, "--seconds", str(seconds)]
        readers = [subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) for _ in range(2)]
        for process in readers:
            assert process.stdin
            process.stdin.write(collector.token + "\n")
            process.stdin.flush()
        start = time.monotonic()
        while (now := time.monotonic()) < start + seconds:
            sender.send(int((now - start) * RATE) - sender.seq)
            time.sleep(0.01)
        eventually(lambda: _stored(reader.status()) == sender.seq, "everything is stored")
        took = time.monotonic() - start
        screens = [ms for process in readers for ms in json.loads(process.communicate()[0])]
        return {
            **_figures(reader.status(), sender, took), "screens": len(screens),
            "screen_p50_ms": round(statistics.median(screens), 1), "screen_p95_ms": round(statistics.quantiles(screens, n=20)[18], 1),
        }


def _collector(sender: Sender, db: Path) -> CollectorProcess:
    collector = CollectorProcess([(sender.publisher.endpoint, sender.publisher.replay_endpoint)], db)
    sender.start()
    with collector.reader() as reader:
        eventually(lambda: reader.status()["sources"], "the collector has joined")
    return collector


def _cpu_s(pid: int) -> float:
    """Processor time a process has used, all threads: what other load on the machine does not change."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _figures(status: dict[str, Any], sender: Sender, seconds: float) -> dict[str, Any]:
    stored = sum(status["rows"][k] for k in EVENT_KINDS)
    assert (status["lost"], status["gaps"], sender.dropped) == (0, 0, 0), status
    assert stored == RECORDS * sender.seq
    return {
        "records_per_s": round(stored / seconds), "seconds": round(seconds, 1), "commits": status["commits"],
        "collector_cpu_s_per_million": round(_cpu_s(status["pid"]) / (stored / 1e6), 2),
        "p50_commit_ms": round(status["commit_ms_p50"], 1), "p99_commit_ms": round(status["commit_ms_p99"], 1),
        "db_bytes": status["db_bytes"] + status["wal_bytes"],
    }


def _stored(status: dict[str, Any]) -> int:
    return max((s["seq"] for s in status["sources"]), default=0) if status["commits"] else 0


def read(source: str, seconds: float) -> list[float]:
    """Milliseconds of each first screen, asked for at 2 Hz."""
    times: list[float] = []
    with client.open(source, sys.stdin.readline().strip()) as reader:
        end = time.monotonic() + seconds
        while (start := time.monotonic()) < end:
            load_overview(reader, 60.0)
            times.append((time.monotonic() - start) * 1e3)
            time.sleep(max(0.0, 0.5 - (time.monotonic() - start)))
    return times


def raw_insert(messages: int, folder: Path) -> float:
    """Records per second of inserting and committing the same columns as ready-made Arrow tables."""
    distinct = [decode(p) for p in payloads(DISTINCT)]
    batches = [build(part, lambda key: 1, lambda src, name: True, 0) for part in _batches(distinct)]
    store = Store(folder / "bare.duckdb")
    with store.cursor() as db:
        start, done = time.monotonic(), 0
        for batch in itertools.cycle(batches):
            if done >= messages:
                break
            db.execute("BEGIN")
            for name, table in batch.tables.items():
                db.register("incoming", table)
                db.execute(f"INSERT INTO store.raw.{name} SELECT * FROM incoming")
            db.execute("COMMIT")
            done += batch.rows["page"] // MIX["page"]
            store.checkpoint(CHECKPOINT_BYTES)
        seconds = time.monotonic() - start
    store.close()
    return RECORDS * done / seconds


def _batches(messages: list[Message]) -> list[list[Message]]:
    per_batch = max(1, Store.batch_bytes // item_bytes(messages[0]))
    return [messages[n : n + per_batch] for n in range(0, len(messages), per_batch)]


def run(seconds: float) -> dict[str, Any]:
    """All parts; numbers as printed."""
    with tempfile.TemporaryDirectory() as folder:
        raw = raw_insert(max(1000, int(seconds * 200)), Path(folder))
        ours = flat_out(seconds, Path(folder))
        pace = paced(seconds, Path(folder))
    wire = sum(map(len, payloads(10))) / (10 * RECORDS)
    return {
        **ours, "raw_records_per_s": round(raw), "ratio_to_raw": round(ours["records_per_s"] / raw, 3),
        "wire_bytes_per_record": round(wire, 1), "paced": pace,
    }


def main() -> None:
    """Print the result as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three seconds of each part")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each part")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--reader", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.reader:
        sys.stdout.write(json.dumps(read(args.reader, args.seconds)))
        return
    result = run(3.0 if args.quick else args.seconds)
    flat = {**{k: v for k, v in result.items() if k != "paced"}, **{f"paced {k}": v for k, v in result["paced"].items()}}
    sys.stdout.write(json.dumps(result) + "\n" if args.json else "".join(f"{k:34} {v:>14,}\n" for k, v in flat.items()))


if __name__ == "__main__":
    main()
