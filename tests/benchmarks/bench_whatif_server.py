"""What-if against a real SGLang server on the CPU: its run replayed from its log, and forecasts of knob changes against the same traffic
served again with those knobs.

    python -m tests.benchmarks.bench_whatif_server [--quick] [--json] [--workflows N] [--changes N] [--keep FOLDER | --from FOLDER]
    -> {"source", "calls", "repeat": {figure: [value of each run at the base setting]},
        "residual": {"closed": {figure: [[measured, replayed] of each run]}, "served": {..}},
        "forecasts": [{"knobs", figure: [low, value, high, present, measured]}], "inside": {figure: share}, "signs": [right, certain]}

One server with a collector; agent workflows in eight lanes, each run on an emptied cache. Before the recorded run the predictor is taught
by other traffic. The base setting is run three times, before the changes and after them, to tell what chance alone makes of it. `--keep`
leaves the log and its index in a folder, `--from` computes the figures from such a folder again, without a server.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from pbkv_sglang_cpu.model import make_model

from collector import client
from pbkv.knobs import Value
from pbkv.whatif.forecast import fidelity, forecast
from pbkv.whatif.logwindow import Window
from pbkv.whatif.replay import replay
from pbkv.whatif.served import replay_served, step_ends
from pbkv.whatif.setting import Setting
from tests.support.lanes import agent_traffic
from tests.support.served import read_stretch, served

#: Knobs of the recorded run, and what changes are drawn from. Budgets are of 512 bytes a token.
BASE: dict[str, Value] = {
    "policy": "he", "gamma": 0.8, "k": 3, "prefetch": "conservative", "prefetch_budget": 64 << 20, "host_order": "recency",
}
DRAWN: dict[str, Sequence[Value]] = {
    "policy": ("lru", "lae", "first_use", "he"), "gamma": (0.2, 0.5, 1.0), "k": (1, 2, 5, 8), "prefetch": ("off", "aggressive"),
    "prefetch_budget": (0, 16 << 10, 128 << 10), "host_order": ("score",),
}
#: Workflows that teach the predictor before, and which run at the base setting is forecast from.
WARM, RECORDED = 10, 1
COMPARED = ("hit", "hit_device", "hit_host", "evictions", "evicted", "ttft_mean", "ttft_p50", "ttft_p95")


@dataclass(frozen=True)
class Run:
    """A stretch of the log, and what was changed in it against BASE."""

    changed: Mapping[str, Value]
    window: Window


def random_changes(count: int, seed: int = 7) -> list[dict[str, Value]]:
    """Distinct changes of one to three knobs."""
    rng, found = random.Random(seed), list[dict[str, Value]]()
    while len(found) < count:
        names = rng.sample(list(DRAWN), rng.randint(1, 3))
        change = {name: rng.choice(DRAWN[name]) for name in names}
        change = {name: value for name, value in change.items() if value != BASE[name]}
        if change and change not in found:
            found.append(change)
    return found


def collect(folder: Path, workflows: int, changes: Sequence[Mapping[str, Value]]) -> None:
    """Serve everything; the log and an index of it are left in `folder`."""
    model = make_model(folder / "tiny")
    (source, traffic), (_, other) = agent_traffic(workflows), agent_traffic(WARM, first=workflows)
    plan: list[Mapping[str, Value]] = [{}, {}, *changes, {}]
    with served(model, folder / "events.duckdb", knobs=BASE) as running:
        running.play(other, "warm", BASE)
        runs: list[dict[str, Any]] = []
        for n, changed in enumerate(plan):
            window = running.play(traffic, f"r{n}", {**BASE, **changed})
            runs.append({"changed": dict(changed), "start": str(window.start), "end": str(window.end)})
            sys.stderr.write(f"{n + 1}/{len(plan)} {changed} {window.start} {window.end}\n")
            index = {"source": source, "calls": traffic.calls, "runs": runs}
            (folder / "runs.json").write_text(json.dumps(index))


def runs_of(folder: Path) -> tuple[dict[str, Any], list[Run]]:
    """The index of a folder that `collect` filled, and its runs."""
    index = json.loads((folder / "runs.json").read_text())
    at = datetime.fromisoformat
    return index, [Run(each["changed"], Window(start=at(each["start"]), end=at(each["end"]))) for each in index["runs"]]


def figures(folder: Path) -> dict[str, Any]:
    """Residuals and forecasts from what was collected. The second run at the base setting is the one that is forecast from."""
    db = folder / "events.duckdb"
    index, runs = runs_of(folder)
    recordings = [read_stretch(db, run.window) for run in runs]
    measured = [each.measured for each in recordings]
    replayed = {
        "closed": [replay(each).figures for each in recordings],
        "served": [replay_served(each, _ends(db, run.window)).figures for each, run in zip(recordings, runs, strict=True)],
    }
    base = recordings[RECORDED]
    known = fidelity(base)
    same = [n for n, run in enumerate(runs) if not run.changed]
    forecasts = [
        {"knobs": dict(run.changed)} | {
            name: [each.low, each.value, each.high, each.present, measured[n][name]]
            for name, each in forecast(base, known, Setting(**run.changed)).estimates.items() if name in COMPARED and name in measured[n]
        }
        for n, run in enumerate(runs) if run.changed
    ]
    return {
        "source": index["source"], "calls": index["calls"],
        "repeat": {name: [measured[n][name] for n in same] for name in COMPARED},
        "residual": {
            how: {name: [[truth[name], each[name]] for truth, each in zip(measured, found, strict=True)] for name in COMPARED}
            for how, found in replayed.items()
        },
        "forecasts": forecasts, **score(forecasts),
    }


def _ends(db: Path, window: Window) -> np.ndarray:
    with client.open(str(db)) as reader:
        return step_ends(lambda sql, given: reader.sql(sql, given, deadline_s=60), window)


def score(forecasts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`inside`: share of forecasts whose interval holds the measured; `signs`: [right, certain], of those that exclude the present."""
    inside: dict[str, float] = {}
    right = certain = 0
    for name in COMPARED:
        rows = [each[name] for each in forecasts if name in each]
        inside[name] = sum(low <= truth <= high for low, _, high, _, truth in rows) / max(1, len(rows))
        sure = [row for row in rows if not row[0] <= row[3] <= row[2]]
        certain += len(sure)
        right += sum((truth - present) * (value - present) > 0 for _, value, _, present, truth in sure)
    return {"inside": inside, "signs": [right, certain]}


def show(found: Mapping[str, Any]) -> str:
    """Tables for people."""
    head = f"{'':12}{'base runs':>33}{'closed loop':>20}{'on its steps':>20}{'inside':>8}"
    lines = [f"{found['calls']} calls of {found['source']}", head]
    for name in COMPARED:
        runs = "".join(f"{value:>11.4f}" for value in found["repeat"][name])
        errors = "".join(f"{_errors(name, found['residual'][how][name]):>20}" for how in ("closed", "served"))
        lines.append(f"{name:12}{runs:>33}{errors}{found['inside'][name]:>8.0%}")
    lines += ["", "hit rate: forecast (interval), measured"]
    for each in found["forecasts"]:
        low, value, high, present, truth = each["hit"]
        label = " ".join(f"{name}={setting}" for name, setting in each["knobs"].items())
        lines.append(f"  {label:58}{value:.4f} ({low:.4f} to {high:.4f}) {truth:.4f}, present {present:.4f}")
    lines.append("signs: {} of {} certain ones".format(*found["signs"]))
    return "\n".join(lines)


def _errors(name: str, pairs: Sequence[Sequence[float]]) -> str:
    """Mean and largest size over the runs; hit rates in points, others in percent."""
    rate = name.startswith("hit")
    off = [100 * abs(replayed - measured) / (1 if rate else measured) for measured, replayed in pairs]
    return f"{statistics.fmean(off):.2f} / {max(off):.2f} {'points' if rate else '%'}"


def main(argv: list[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two changes, a few workflows")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--workflows", type=int, default=60)
    parser.add_argument("--changes", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="leave log and index there")
    parser.add_argument("--from", dest="source", type=Path, help="a folder that --keep left")
    options = parser.parse_args(argv)
    workflows, changes = (16, 2) if options.quick else (options.workflows, options.changes)
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = options.source or options.keep or Path(scratch)
        if options.source is None:
            folder.mkdir(parents=True, exist_ok=True)
            collect(folder, workflows, random_changes(changes))
        found = figures(folder)
    print(json.dumps(found, indent=2) if options.json else show(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
