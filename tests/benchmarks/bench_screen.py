"""Event to screen: from packing an event in the engine to the frame of `pbkv top` that shows it.

    python -m tests.benchmarks.bench_screen [--quick] [--json]

Real at every joint: writer and publisher here, the collector as a process, Arrow Flight, the view queries, the Textual app (headless, at
its default refresh interval and at its fastest). The baseline of the same run is a bare ZMQ subscriber of the same stream.
"""

import argparse
import asyncio
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from console.top.app import Data, TopApp
from console.top.feed import Feed
from pbkv.control.client import ControlClient
from pbkv.events.wire import TOPIC, decode
from tests.support.collector import CollectorProcess, eventually
from tests.support.stream import LiveProducer


class Watched(TopApp):
    """Notes when the frame that holds a marker has been drawn."""

    shown: dict[int, float]

    def on_data(self, message: Data) -> None:
        super().on_data(message)
        overview = message.snapshot.overview
        if overview is not None and overview.occupancy is not None:
            marker = overview.occupancy.waiting
            self.call_after_refresh(lambda: self.shown.setdefault(marker, time.monotonic()))


def _bare(endpoint: str, seen: dict[int, float], stop: threading.Event) -> None:
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.connect(endpoint)
    socket.subscribe(TOPIC)
    while not stop.is_set():
        if socket.poll(100):
            for row in decode(socket.recv_multipart()[1]).tables.get("occupancy", ()):
                seen.setdefault(int(row["waiting"]), time.monotonic())
    socket.close()


async def _delays(
    producer: LiveProducer, source: CollectorProcess, interval_s: float, samples: int, first: int
) -> tuple[list[float], list[float]]:
    feed = Feed(source.reader, lambda url: ControlClient(url), interval_s=interval_s)
    app = Watched(feed)
    app.shown = {}
    bare: dict[int, float] = {}
    stop = threading.Event()
    thread = threading.Thread(target=_bare, args=(producer.endpoint, bare, stop), daemon=True)
    thread.start()
    sent: dict[int, float] = {}
    async with app.run_test(size=(160, 48)):
        await asyncio.sleep(2 * interval_s + 1)
        for marker in range(first, first + samples):
            producer.writer.emit["occupancy"](1000, 1000, 500, 100, 1000, 500, 100, 10, 1, marker, 3)
            producer.writer.flush()
            sent[marker] = time.monotonic()
            while marker not in app.shown:
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.137 * (marker % 5))  # so that samples fall anywhere in the refresh interval
    stop.set()
    thread.join()
    return [app.shown[m] - sent[m] for m in sent], [bare[m] - sent[m] for m in sent if m in bare]


def measure(samples: int) -> dict[str, Any]:
    """Delays in ms: percentiles at both refresh intervals, and of the bare subscriber."""
    result: dict[str, Any] = {"samples": samples}
    with tempfile.TemporaryDirectory() as folder, LiveProducer(speed=None, seconds=0.5) as producer:
        producer.finished.wait()
        with CollectorProcess([(producer.endpoint, producer.replay_endpoint)], Path(folder) / "b.duckdb") as collector:
            eventually(lambda: collector.stored(producer.writer.epoch) >= producer.writer.seq, "the collector has caught up")
            for n, interval in enumerate((1.0, 0.25)):
                screen, bare = asyncio.run(_delays(producer, collector, interval, samples, 1000 * (n + 1)))
                result[f"top_{interval:g}s"] = _summary(screen)
                result["bare_subscriber"] = _summary(bare)
            collector.stop()
    return result


def _summary(seconds: list[float]) -> dict[str, float]:
    p50, p95 = np.percentile(np.array(seconds) * 1e3, [50, 95])
    return {"p50_ms": round(float(p50), 1), "p95_ms": round(float(p95), 1), "max_ms": round(max(seconds) * 1e3, 1)}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5 samples instead of 30")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(5 if args.quick else 30)
    if args.json:
        print(json.dumps(result))
        return
    for name, row in result.items():
        print(f"{name:18} {row}")


if __name__ == "__main__":
    main()
