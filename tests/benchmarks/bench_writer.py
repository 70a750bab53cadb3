"""Cost of an event on the scheduler thread, ns of that thread's CPU time per event, best of several rounds.

    python -m tests.benchmarks.bench_writer [--quick] [--json]
    -> {"enabled_ns", "disabled_ns", "pack_into_alone_ns", "ratio_to_pack_into", "no_subscriber_ns", "stopped_collector_ns", ...}

An event is an `eviction` record; a step is 20 of them and one flush. `enabled` has a collector that keeps up, `stopped_collector` one
that is suspended (SIGSTOP) with its buffers full, `disabled` is the test for an emitter that is None. The loop itself is taken off.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from pbkv.events.publisher import Publisher
from pbkv.events.schema import BY_NAME
from pbkv.events.writer import Emit, EventWriter
from tests.support.collector import CollectorProcess, eventually

EVENTS = 20


def steps(emit: Emit | None, count: int) -> None:
    """`count` steps of EVENTS events each, without a flush: what the scheduler does when something happens."""
    for n in range(count):
        for _ in range(EVENTS):
            if emit is not None:
                emit(n, 512, 1, 2, 1, 0.25, 1500.0, 300.0, 3, 40, 900, 7)


def empty(count: int) -> None:
    """The loops of `steps` alone."""
    for _ in range(count):
        for _ in range(EVENTS):
            pass


def best(work: Callable[[], None], events: int, rounds: int) -> float:
    """CPU ns per event of this thread, best of `rounds`."""
    times = []
    for _ in range(rounds):
        start = time.thread_time_ns()
        work()
        times.append(time.thread_time_ns() - start)
    return min(times) / events


class Measurement:
    """The same rounds for any writer."""

    def __init__(self, quick: bool) -> None:
        self.rounds, self.steps = (8, 40) if quick else (40, 40)
        self.loop_ns = best(lambda: empty(self.steps), EVENTS * self.steps, self.rounds)

    def disabled(self) -> float:
        return best(lambda: steps(None, self.steps), EVENTS * self.steps, self.rounds) - self.loop_ns

    def floor(self) -> float:
        """What Python asks for packing the same record into a buffer, with nothing around it: no emitter of this kind can be cheaper."""
        struct = BY_NAME["eviction"].struct
        pack_into, buffer = struct.pack_into, bytearray(struct.size)

        def work() -> None:
            for n in range(self.steps):
                for _ in range(EVENTS):
                    pack_into(buffer, 0, n, n, 512, 1, 2, 1, 0.25, 1500.0, 300.0, 3, 40, 900, 7)

        return best(work, EVENTS * self.steps, self.rounds) - self.loop_ns

    def enabled(self, writer: EventWriter) -> dict[str, float]:
        """ns per event, us per flush, and the slowest step in wall-clock ms."""
        emit = writer.emit["eviction"]
        packing, flushing, walls = [], [], []
        for n in range(self.rounds * self.steps):
            wall, start = time.perf_counter_ns(), time.thread_time_ns()
            steps(emit, 1)
            packed = time.thread_time_ns()
            writer.flush(n)
            flushing.append(time.thread_time_ns() - packed)
            packing.append(packed - start)
            walls.append(time.perf_counter_ns() - wall)
        packing.sort()
        flushing.sort()
        # The clock's own cost is in every sample once.
        clock = best(lambda: None, 1, 200)
        typical = packing[len(packing) // 10]
        return {
            "ns": (typical - clock) / EVENTS - self.loop_ns,
            "flush_us": (flushing[len(flushing) // 2] - clock) / 1e3,
            "slowest_ms": max(walls) / 1e6,
        }


@contextmanager
def collected(folder: Path, *, suspended: bool):
    """A writer with a collector behind it, running or suspended with everything in between filled up."""
    publisher = Publisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", queue_messages=2048, heartbeat_s=0.2)
    writer = EventWriter("bench", publisher)
    publisher.start(writer.heartbeat, writer.names_message)
    db = folder / ("suspended.duckdb" if suspended else "running.duckdb")
    with CollectorProcess([(publisher.endpoint, publisher.replay_endpoint)], db) as collector:
        with collector.reader() as reader:
            eventually(lambda: reader.status()["sources"], "the collector has joined")
        if suspended:
            collector.process.send_signal(signal.SIGSTOP)
            for n in range(20_000):
                steps(writer.emit["eviction"], 1)
                writer.flush(n)
        yield writer
        publisher.close()


def run(quick: bool) -> dict[str, float]:
    """All four cases; numbers as printed."""
    measure = Measurement(quick)
    result: dict[str, float] = {"disabled_ns": measure.disabled(), "pack_into_alone_ns": measure.floor()}
    publisher = Publisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*")
    writer = EventWriter("bench", publisher)
    publisher.start(writer.heartbeat, writer.names_message)
    result["no_subscriber_ns"] = measure.enabled(writer)["ns"]
    publisher.close()
    with tempfile.TemporaryDirectory() as folder:
        with collected(Path(folder), suspended=False) as writer:
            enabled = measure.enabled(writer)
        with collected(Path(folder), suspended=True) as writer:
            stopped = measure.enabled(writer)
            result["dropped_while_stopped"] = writer.dropped
    result |= {
        "enabled_ns": enabled["ns"], "flush_us": enabled["flush_us"], "slowest_step_ms": enabled["slowest_ms"],
        "ratio_to_pack_into": enabled["ns"] / result["pack_into_alone_ns"],
        "stopped_collector_ns": stopped["ns"], "stopped_flush_us": stopped["flush_us"], "stopped_slowest_step_ms": stopped["slowest_ms"],
    }
    return {name: round(value, 2) for name, value in result.items()}


def main() -> None:
    """Print the result as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = run(args.quick)
    sys.stdout.write(json.dumps(result) + "\n" if args.json else "".join(f"{k:24} {v:>12,.2f}\n" for k, v in result.items()))


if __name__ == "__main__":
    main()
