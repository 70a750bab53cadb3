"""A server at saturation with knobs turned at random, for as long as it is told: nothing may grow, leak, or fall behind.

    make soak [SECONDS=1800] [ARGS="--seed 6"]
    make soak ARGS=--stock                          the same load on a stock server, to compare memory with

Reads the server's processes every few seconds: memory, open files, leaves and workflows known to the plugin. Fails when memory of a process
grows by more than MOST_GROWTH in the second half, when files do, when leaves outnumber the pages of the pools, when a workflow stays after
all ended, when the plugin had a fault, when the event stream has a gap, or when SGLang's own leak check (which ends the server) spoke.
Prints what the plugin took per step. The replay buffer and the table of pages, which are bounded but large, are kept small by the settings.
"""

import argparse
import json
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pbkv_sglang_cpu.model import make_model

from pbkv.control.client import ControlClient
from tests.server.mixed import mixed, play
from tests.server.turning import Turner
from tests.support.server import Events, Server, running_server, wait_for

#: Growth of a process over the second half that is called a leak, MB. The names of some 70,000 pages in 15 minutes take 20 MB.
MOST_GROWTH = 40.0
POOL, RATIO, PAGE = 6144, 3, 64
LANES = 6
PERIOD_S = 5.0


@dataclass
class Sample:
    """One reading: seconds since the start, and per process of the server its memory (bytes) and open files."""

    at: float
    rss: dict[str, int]
    files: dict[str, int]
    state: dict[str, Any]


class Load:
    """Lanes that send mixed requests without a pause until told to end; each round has other tokens and workflows."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.seed, self.answers, self.failed = server, seed, 0, []
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._lanes = [threading.Thread(target=self._lane, args=(n,)) for n in range(LANES)]

    def _lane(self, lane: int) -> None:
        number = 0
        try:
            while not self.stop.is_set():
                number += 1
                answers = play(self.server, mixed(self.seed * 1_000_000 + lane * 10_000 + number, 12, live=2, context=300))
                with self._lock:
                    self.answers += len(answers)
        except Exception as error:
            self.failed.append(f"lane {lane}: {error!r}")

    def __enter__(self) -> "Load":
        for lane in self._lanes:
            lane.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        for lane in self._lanes:
            lane.join()


def read(server: Server, started: float, *, plugin: bool = True) -> Sample:
    """All processes of the server by their names."""
    top = psutil.Process(server.process.pid)
    processes = {f"{p.name()} {p.pid}": p for p in [top, *top.children(recursive=True)]}
    return Sample(
        time.monotonic() - started, {n: p.memory_info().rss for n, p in processes.items()}, {n: p.num_fds() for n, p in processes.items()},
        server.state() if plugin else {},
    )


def growth(samples: list[Sample], process: str) -> float:
    """Growth of a process's memory over the samples by least squares, MB."""
    points = [(s.at, s.rss[process] / 1e6) for s in samples if process in s.rss]
    mid_t, mid_m = (sum(p[axis] for p in points) / len(points) for axis in (0, 1))
    spread = sum((t - mid_t) ** 2 for t, _ in points)
    slope = sum((t - mid_t) * (m - mid_m) for t, m in points) / spread if spread else 0.0
    return slope * (points[-1][0] - points[0][0])


def soak(server: Server, seconds: float, seed: int) -> dict[str, Any]:
    """Load and turn for so long, then let all workflows retire; the report."""
    events, turner = Events(server.state()["events"]), Turner(server.url, seed, retire_idle_s=(2.0, 5.0, 20.0))
    started, samples = time.monotonic(), list[Sample]()
    with Load(server, seed) as load:
        while (now := time.monotonic() - started) < seconds and not load.failed:
            turner.turn()
            samples.append(read(server, started))
            events.drain()
            events.tally()
            load.stop.wait(max(0.0, PERIOD_S - (time.monotonic() - started - now)))
    ControlClient(server.url, actor="test").set({"retire_idle_s": 1, "prefetch": "off"})
    wait_for(lambda: server.state()["workflows"] == 0, 60)
    events.drain()
    events.tally()
    events.close()
    half = samples[len(samples) // 2 :]
    return {
        "seconds": round(time.monotonic() - started), "answers": load.answers, "knob_changes": turner.turned, "failed": load.failed,
        "gaps": events.gaps, "events": dict(events.totals), "most_workflows": max(s.state["workflows"] for s in samples),
        "most_leaves": max(s.state["leaves"] for s in samples),
        "growth_mb": {p: round(growth(half, p), 1) for p in half[-1].rss}, "rss_mb": {p: r // 10**6 for p, r in half[-1].rss.items()},
        "files": {p: (half[0].files.get(p, f), f) for p, f in half[-1].files.items()}, "state": server.state(), "alive": server.alive(),
        "leak_check_silent": "leak" not in server.log().lower().replace("memory_leak", ""),
    }


def control(server: Server, seconds: float, seed: int) -> dict[str, Any]:
    """The same load on a server without the plugin: how its processes grow."""
    started, samples = time.monotonic(), list[Sample]()
    with Load(server, seed) as load:
        while (now := time.monotonic() - started) < seconds and not load.failed:
            samples.append(read(server, started, plugin=False))
            load.stop.wait(max(0.0, PERIOD_S - (time.monotonic() - started - now)))
    half = samples[len(samples) // 2 :]
    growths = {p: round(growth(half, p), 1) for p in half[-1].rss}
    return {"seconds": round(time.monotonic() - started), "answers": load.answers, "failed": load.failed, "growth_mb": growths}


def faults_of(report: dict[str, Any]) -> list[str]:
    """What is wrong with it, in words."""
    found = list(report["failed"])
    found += [f"{p} grew by {g} MB in the second half" for p, g in report["growth_mb"].items() if g > MOST_GROWTH]
    found += ["more leaves than pages"] if report["most_leaves"] > POOL * (1 + RATIO) // PAGE else []
    found += [f"{p} went from {a} to {b} open files" for p, (a, b) in report["files"].items() if b > a + 3]
    found += ["the plugin had a fault: " + str(report["state"]["fault"])] if report["state"]["faults"] else []
    found += [f"{report['gaps']} gaps in the event stream"] if report["gaps"] else []
    found += [] if report["alive"] else ["the server is gone"]
    return found + ([] if report["leak_check_silent"] else ["SGLang's leak check spoke"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--stock", action="store_true", help="without the plugin: growth alone, which nothing is held against")
    args = parser.parse_args()
    env = {"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1"}
    options: dict[str, Any] = {"max_total_tokens": POOL, "hicache_ratio": RATIO, "page_size": PAGE, "max_running_requests": 8, "env": env}
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "tiny")
        config = None if args.stock else {"server": "soak", "replay_bytes": 1 << 20}
        with running_server(model, config=config, **options) as server:
            report = (control if args.stock else soak)(server, args.seconds, args.seed)
    print(json.dumps(report, indent=2))
    if args.stock:
        return 0
    found = faults_of(report)
    print("\n".join(found) or "sound")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
