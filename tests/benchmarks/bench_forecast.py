"""Forecast service: from a question to its answer, in its own process, over an event log.

    python -m tests.benchmarks.bench_forecast [--quick] [--json]
    -> {"yardstick_ms", "logs": {calls: {"first_s", "one_s", "four_s", "known_s", "calls", "left_out"}}}

The log is the one of bench_grid, of an embedded engine that serves HoVer-like workflows. `first_s`: the first question there is, which
starts the process, reads the log and replays the recorded setting; `one_s`, `four_s`: then one new setting and four, medians; `known_s`:
one that was asked before. `calls` are in the figures, `left_out` before them were too many for the time. The yardstick is that of
bench_engine.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from collector.client import open as open_source
from pbkv.whatif.live import FromLog
from pbkv.whatif.question import Answer
from pbkv.whatif.service import Forecaster
from pbkv.whatif.setting import Setting
from tests.benchmarks.bench_engine import yardstick_ms
from tests.benchmarks.bench_grid import log_of

ROUNDS = 5


def timed(service: Forecaster, settings: Sequence[Setting]) -> tuple[float, Answer]:
    """Seconds to the whole answer."""
    done, answers = threading.Event(), list[Answer]()

    def tell(answer: Answer) -> None:
        answers.append(answer)
        if answer.done:
            done.set()

    started = time.perf_counter()
    service.ask("bench", settings, tell, span_s=86_400.0)
    assert done.wait(300), "no answer within five minutes"
    assert not answers[-1].error, answers[-1].error
    return time.perf_counter() - started, answers[-1]


def measure(log: Path, rounds: int) -> dict[str, Any]:
    """All of it on one log."""
    service = Forecaster(FromLog(partial(open_source, str(log))))
    try:
        first, answer = timed(service, [Setting(policy="lru")])
        gammas = iter(n / 1000 for n in range(1, 1000))
        one = [timed(service, [Setting(gamma=next(gammas))])[0] for _ in range(rounds)]
        four = [timed(service, [Setting(gamma=next(gammas), k=k) for k in (1, 2, 3, 4)])[0] for _ in range(rounds)]
        known, _ = timed(service, [Setting(policy="lru")])
    finally:
        service.close()
    assert answer.about is not None
    times = {"first_s": first, "one_s": median(one), "four_s": median(four), "known_s": known}
    return {**{name: round(value, 3) for name, value in times.items()}, "calls": answer.about.calls, "left_out": answer.about.left_out}


def main() -> None:
    """Print a line per log, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small log, one round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result: dict[str, Any] = {"yardstick_ms": yardstick_ms(), "logs": {}}
    with tempfile.TemporaryDirectory() as folder:
        for calls in (500,) if options.quick else (2000, 20_000):
            result["logs"][calls] = measure(log_of(calls, Path(folder)), 1 if options.quick else ROUNDS)
            if not options.json:
                print(f"{calls:>7,} calls in the log: {result['logs'][calls]}", flush=True)
    print(json.dumps(result) if options.json else f"yardstick {result['yardstick_ms']:.1f} ms")


if __name__ == "__main__":
    main()
