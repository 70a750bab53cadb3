"""The synthetic workload as a .duckdb file, as a live publisher in a thread, and as a process of its own.

    fill(path, seconds=120, seed=0)            a file written by the real store
    with LiveProducer(speed=10) as producer:   publishes on producer.endpoint / producer.replay_endpoint
    python -m tests.support.stream --events tcp://127.0.0.1:5601 --replay tcp://127.0.0.1:5602 --seconds 30
"""

import argparse
import json
import threading
import time
from pathlib import Path
from typing import Self

from collector.store import Store
from collector.stream import Item, Stream, key_of
from pbkv.events.publisher import Publisher
from pbkv.events.wire import decode
from pbkv.events.writer import EventWriter
from tests.support.workload import STEP_NS, Clock, Workload

#: Messages per transaction of `fill`.
_BATCH = 500


class Recorder:
    """A sink that keeps every message."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def offer(self, seq: int, payload: bytes) -> bool:
        self.payloads.append(payload)
        return True


def record(seconds: float = 10, seed: int = 0, *, server: str = "synthetic-0", epoch: int | None = None, rank: int = 0) -> list[bytes]:
    """The wire messages of `seconds` of virtual time, deterministic in `seed`."""
    sink, clock = Recorder(), Clock()
    writer = EventWriter(
        server, sink, rank=rank, epoch=clock.wall_ns if epoch is None else epoch,
        monotonic_ns=lambda: clock.mono_ns, wall_ns=lambda: clock.wall_ns,
    )
    Workload(writer, clock, seed).run(seconds)
    return sink.payloads


def fill(db_path: Path | str, seconds: float = 120, seed: int = 0, *, server: str = "synthetic-0", epoch: int | None = None) -> int:
    """Write `seconds` of events into a .duckdb file through the real store; returns the number of messages."""
    messages = [decode(p) for p in record(seconds, seed, server=server, epoch=epoch)]
    stream = Stream(key_of(messages[0].header))
    items: list[Item] = [item for message in messages for item in stream.offer(message)]
    store = Store(Path(db_path))
    try:
        for start in range(0, len(items), _BATCH):
            store.commit(items[start : start + _BATCH])
    finally:
        store.close()
    return len(items)


class LiveProducer:
    """Publishes the workload from a thread, `speed` virtual seconds per second (None: as fast as it goes), on wall time.

    `epoch` and `seed` make restarts: a second producer on the same endpoints with another epoch is a restarted server.
    """

    def __init__(
        self, *, events: str = "tcp://127.0.0.1:*", replay: str = "tcp://127.0.0.1:*", server: str = "synthetic-0",
        epoch: int | None = None, seed: int = 0, speed: float | None = 1.0, seconds: float | None = None, control_url: str = "",
        workflows_per_s: float = 1.5, replay_bytes: int = 64 << 20, heartbeat_s: float = 0.2,
    ) -> None:
        self.publisher = Publisher(events, replay, replay_bytes=replay_bytes, heartbeat_s=heartbeat_s)
        self.endpoint, self.replay_endpoint = self.publisher.endpoint, self.publisher.replay_endpoint
        clock = Clock(time.monotonic_ns(), time.time_ns())
        self.writer = EventWriter(server, self.publisher, epoch=epoch, monotonic_ns=lambda: clock.mono_ns, wall_ns=lambda: clock.wall_ns)
        self._workload = Workload(self.writer, clock, seed, workflows_per_s=workflows_per_s, control_url=control_url)
        self._speed, self._seconds = speed, seconds
        self._stop = threading.Event()
        self.finished = threading.Event()
        self._thread = threading.Thread(target=self._run, name="synthetic", daemon=True)

    def __enter__(self) -> Self:
        self.publisher.start(self.writer.heartbeat, self.writer.names_message)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self.publisher.close()

    def stop(self) -> None:
        """Stop producing but keep answering replay and sending heartbeats until the context is left."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        steps = None if self._seconds is None else int(self._seconds * 1e9 / STEP_NS)
        start, done = time.monotonic(), 0
        while not self._stop.is_set() and (steps is None or done < steps):
            self._workload.step()
            done += 1
            if self._speed is not None:
                self._stop.wait(max(0.0, start + done * STEP_NS / 1e9 / self._speed - time.monotonic()))
        self.finished.set()


def main() -> None:
    """Publish, print one JSON line when bound and one at the end, then stay for replay until standard input closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", default="tcp://127.0.0.1:*")
    parser.add_argument("--replay", default="tcp://127.0.0.1:*")
    parser.add_argument("--seconds", type=float, default=None, help="virtual seconds; without: until stopped")
    parser.add_argument("--speed", type=float, default=1.0, help="virtual seconds per second")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--server", default="synthetic-0")
    parser.add_argument("--control-url", default="")
    args = parser.parse_args()
    with LiveProducer(
        events=args.events, replay=args.replay, seconds=args.seconds, speed=args.speed, seed=args.seed, server=args.server,
        control_url=args.control_url,
    ) as producer:
        print(json.dumps({"events": producer.endpoint, "replay": producer.replay_endpoint, "epoch": producer.writer.epoch}), flush=True)
        try:
            producer.finished.wait()
            producer.stop()
            print(json.dumps({"messages": producer.writer.seq, "dropped": producer.writer.dropped}), flush=True)
            if args.seconds is not None:
                producer.publisher.close()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
