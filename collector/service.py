"""The collector as one call: subscriber, writer and read server around one store, until told to stop."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from collector.flight import FlightReads
from collector.ingest import Ingest
from collector.lake import LakeStore
from collector.metrics import MetricsPage
from collector.options import Options
from collector.pipe import Pipe
from collector.quack import Quack
from collector.store import Store
from collector.subscriber import Subscriber
from collector.token import load_or_create, state_dir
from collector.upkeep import Upkeep
from collector.watchdog import Watchdog
from pbkv.errors import PbkvError, UsageError
from pbkv.events.schema import DIGEST, SCHEMA_VERSION

DEFAULT_LISTEN = "127.0.0.1:5615"
_WATCH_S = 0.2


class Collector:
    """A running collector. The constructor starts it; `close` drains, commits, checkpoints and ends every thread."""

    def __init__(self, connect: list[tuple[str, str]], db: Path, listen: str, folder: Path, options: Options | None = None) -> None:
        """Raises UsageError: no endpoint or a bad one, a database or archive that cannot be used, a port in use."""
        options = options or Options()
        tls = options.tls.read() if options.tls else None
        host, port = parse_listen(listen)
        check_endpoints(connect)
        token = load_or_create(folder)
        quack = Quack(*parse_listen(options.quack), token) if options.quack else None
        if options.lake:
            self.store = LakeStore(options.lake, options.lake_data)
        else:
            self.store = Store(db, archive=options.retention.archive, quack=quack)
        self.quack = quack.url if quack else None
        try:
            self._rows_before = self.store.counts()
            self.upkeep = Upkeep(self.store, options.retention)
        except BaseException:
            self.store.close()
            raise
        try:
            self.pipe = Pipe()
            self.ingest = Ingest(self.pipe, self.store)
            self.reads = FlightReads(self.store, host, port, token, self.status, tls=tls)
            self.subscriber = self._subscribe(connect, options.metrics)
            self._watchdog = Watchdog(self.store, options.quack_query_s) if options.supervised else None
        except BaseException:
            self.upkeep.finish()
            self.store.close()
            raise
        self.source = f"grpc{'+tls' if tls else ''}://{host}:{self.reads.port}"
        self.token_file = folder / "token"
        self.ingest.thread.start()
        self.upkeep.thread.start()
        self.subscriber.thread.start()

    def _subscribe(self, connect: list[tuple[str, str]], metrics: str) -> Subscriber:
        self.metrics: MetricsPage | None = None
        try:
            if metrics:
                self.metrics = MetricsPage(*parse_listen(metrics), self.status)
            return Subscriber(connect, self.store.high_water(), self.pipe)
        except BaseException:
            self._end_reads()
            raise

    def _end_reads(self) -> None:
        if self.metrics is not None:
            self.metrics.close()
        self.reads.close()

    def about(self) -> dict[str, Any]:
        """Where it is: {"source", "db", "token_file", "pid", "metrics", "quack"}."""
        return {
            "source": self.source, "db": str(self.store.path), "token_file": str(self.token_file), "pid": os.getpid(),
            "metrics": self.metrics.url if self.metrics else None, "quack": self.quack,
        }

    @property
    def alive(self) -> bool:
        """False when a thread ended by itself, which only a defect can cause."""
        return all(t.is_alive() for t in (self.ingest.thread, self.subscriber.thread, self.upkeep.thread))

    def close(self) -> None:
        """Stop reading, store what was read, checkpoint. Raises PbkvError when the last batch could not be written."""
        if self._watchdog is not None:
            self._watchdog.close()
        self.subscriber.stop.set()
        self.ingest.stopping.set()
        self.subscriber.thread.join()
        self.pipe.close()
        self.ingest.thread.join()
        self.upkeep.finish()
        self._end_reads()
        self.store.close()
        if not self.ingest.complete:
            left = self.ingest.left + self.pipe.depth[0]
            raise PbkvError(f"{left} messages read but not stored ({self.ingest.last_error}); they are asked for again at the next start")

    def status(self) -> dict[str, Any]:
        """Counters: streams, queue, rows, commits, errors; the answer of the `status` action."""
        items, waiting = self.pipe.depth
        sources = self._sources()
        commits = sorted(self.ingest.commit_ms)
        return {
            "live": True,
            "pid": os.getpid(),
            "db": str(self.store.path),
            "db_bytes": _size(self.store.path),
            "wal_bytes": _size(Path(f"{self.store.path}.wal")),
            "schema_version": SCHEMA_VERSION,
            "digest": DIGEST.hex(),
            "sources": sources,
            "gaps": sum(s["gaps"] for s in sources),
            "lost": sum(s["lost"] for s in sources),
            "duplicates": sum(s["duplicates"] for s in sources),
            "refused": self.subscriber.refused,
            "last_refusal": self.subscriber.last_refusal,
            "queue": {"messages": items, "bytes": waiting},
            "rows": {kind: n + self.ingest.rows[kind] for kind, n in self._rows_before.items()},
            "rows_per_s": self.ingest.rows_per_s(time.monotonic()),
            "commits": self.ingest.commits,
            "commit_ms_p50": commits[len(commits) // 2] if commits else None,
            "commit_ms_p99": commits[int(len(commits) * 0.99)] if commits else None,
            "queries": self.reads.queries,
            "failing": self.ingest.failing,
            "upkeep_failing": self.upkeep.failing,
            "last_error": self.ingest.last_error,
            "archive": self.upkeep.keeper.status(),
        }

    def _sources(self) -> list[dict[str, Any]]:
        ages = self.subscriber.ages()
        return [
            {
                "server": key.server, "epoch": key.epoch, "rank": key.rank, "seq": self.ingest.stored.get(key, (stream.done, 0.0))[0],
                "seen": stream.seen, "held": stream.held, "lag_s": self.ingest.stored.get(key, (0, None))[1], "age_s": ages.get(key),
                "gaps": stream.gaps, "lost": stream.lost, "duplicates": stream.duplicates, "dropped_by_server": stream.sender_dropped,
            }
            for key, stream in list(self.subscriber.streams.items())
        ]


def run_collector(
    connect: list[tuple[str, str]], db: Path, listen: str = DEFAULT_LISTEN, state_folder: Path | None = None,
    on_ready: Callable[[dict[str, Any]], None] | None = None, stop: threading.Event | None = None, options: Options | None = None,
) -> dict[str, Any]:
    """Collect until `stop` is set; returns the final status.

    `connect`: (events, replay) endpoint pairs. `on_ready` gets `Collector.about()` once reads are served.
    Raises UsageError for bad input, PbkvError when a batch could not be written at the end or a thread died.
    """
    stop = stop or threading.Event()
    collector = Collector(connect, db, listen, state_dir(state_folder), options)
    try:
        if on_ready:
            on_ready(collector.about())
        while not stop.wait(_WATCH_S) and collector.alive:
            pass
        failed = not stop.is_set()
    finally:
        collector.close()
    if failed:
        raise PbkvError("the collector stopped by itself; its log says why")
    return collector.status()


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set. Call in the main thread."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
    return stop


def parse_listen(listen: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT, with grpc:// or grpc+tls:// before it or not; port 0 takes a free one. Raises UsageError."""
    host, _, port = listen.removeprefix("grpc://").removeprefix("grpc+tls://").rstrip("/").rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"listen address {listen!r}: expected HOST:PORT, for example {DEFAULT_LISTEN}")
    return host, int(port)


def parse_pair(text: str) -> tuple[str, str]:
    """(events, replay) of "EVENTS,REPLAY". Raises UsageError."""
    events, _, replay = text.partition(",")
    if not events or not replay or "," in replay:
        raise UsageError(f"endpoints {text!r}: expected EVENTS,REPLAY, for example tcp://127.0.0.1:5601,tcp://127.0.0.1:5602")
    return events, replay


def check_endpoints(connect: list[tuple[str, str]]) -> None:
    """Raise UsageError unless there is an endpoint pair and none is named twice."""
    if not connect:
        raise UsageError("endpoints: expected at least one EVENTS,REPLAY pair; name it with --connect")
    for pair in connect:
        if connect.count(pair) > 1:
            raise UsageError(f"endpoints {','.join(pair)!r}: named twice; name them once")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
