"""Time of predictions, and with --traces how good they are, in one run.

    python -m tests.benchmarks.bench_predict [--quick] [--json] [--traces FILE] [--folds N]
    -> {"network_us": {agents: {..}}, "online_us": {agents: us}, "accuracy": {..}}

`pass`: the network from encoded moments to the probabilities of all agents, ends and survival at 8 steps, as arrays; what the text adds
is projected before, as at its arrival. `single`: one prediction from the moment, text included, to the Prediction that a policy reads.
`online`: an observe and a predict of the online Markov chain, amortised over its first 10,000 calls, CPU time. The others: median and
fastest of the rounds, wall time, as many threads as NumPy takes; nothing else should run.

--traces: N folds of whole runs; a network is trained on each fold's others (an eighth of them validation) and judged on the fold. All
folds' outcomes are judged together. --synthetic: the same for the generators, beside their own exact distribution.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pbkv.knobs import K_MAX
from pbkv.predictor.backoff import fit
from pbkv.predictor.base import Moment, Predictor
from pbkv.predictor.dataset import Trace, folds, from_workload, load_traces, split
from pbkv.predictor.evaluate import Score, evaluate, judge
from pbkv.predictor.learned import Learned
from pbkv.predictor.markov import OnlineMarkov
from pbkv.predictor.names import Roster
from pbkv.predictor.serving import shapes

BATCH = 1024
WIDTHS = {"node": 32, "path": 32, "text": 64, "hidden": 64, "candidate": 16}
STEPS = 3


def times_us(work: Callable[[], object], rounds: int) -> dict[str, float]:
    """Median and fastest wall time of one `work`, microseconds."""
    for _ in range(5):
        work()
    taken = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        work()
        taken.append((time.perf_counter_ns() - start) / 1e3)
    return {"median": round(statistics.median(taken), 1), "fastest": round(min(taken), 1)}


def network(agents: int, text_dim: int) -> tuple[Learned, list[Moment]]:
    """A network with random weights, and BATCH moments of paths of up to 60 calls: the time does not depend on what was learned."""
    rng = np.random.default_rng(0)
    weights = {name: (rng.standard_normal(shape) / 8).astype(np.float32) for name, shape in shapes(agents, text_dim, WIDTHS).items()}
    names = [f"agent {n}" for n in range(agents)]
    predictor = Learned(weights, names, text_dim, np.ones((2, K_MAX), np.float32), np.zeros((2, K_MAX), np.float32), Roster(names))
    moments = []
    for n in range(BATCH):
        path = rng.integers(0, agents, rng.integers(1, 60)).tolist()
        moments.append(Moment(f"w{n}", path, len(path), bool(n % 2), rng.standard_normal(text_dim).astype(np.float32)))
    return predictor, moments


def network_us(agents: int, text_dim: int, rounds: int) -> dict[str, Any]:
    """Times of one network."""
    predictor, moments = network(agents, text_dim)
    encoded, turn = predictor.encode(moments), iter(moments * rounds)
    return {
        f"pass of {BATCH}": times_us(lambda: predictor.forward(encoded), rounds),
        "single": times_us(lambda: predictor.predict(next(turn)), rounds * 3),
    }


def online_us(agents: int, calls: int = 10_000) -> float:
    """An observe and a predict, on a graph where each agent is followed by any."""
    rng, predictor, path = random.Random(0), OnlineMarkov(), [0]
    coming = [min(rng.randrange(agents), rng.randrange(agents)) for _ in range(calls)]
    start = time.thread_time_ns()
    for agent in coming:
        predictor.observe(path, agent)
        path = [agent]
        predictor.predict(Moment("w", path, 1))
    return round((time.thread_time_ns() - start) / 1e3 / calls, 2)


# ---- accuracy --------------------------------------------------------------------------------------------------------------


def learn(traces: list[Trace], names: list[str], backbone: str, epochs: int) -> Predictor:
    """A network, an eighth of the runs for early stopping and calibration."""
    import torch

    from pbkv.predictor.train import Recipe, Trainer

    torch.set_num_threads(1)
    validation, train = split(traces, (0.125, 0.875), 0)
    trainer = Trainer(train, validation, Recipe(backbone=backbone, epochs=epochs))
    while not trainer.done:
        trainer.run_epoch()
    weights, config = trainer.finish()
    fitted = (np.array(config[name], np.float32) for name in ("temperatures", "doubts"))
    return Learned(weights, config["agents"], config["text_dim"], *fitted, Roster(names))


def makers(epochs: int) -> dict[str, Callable[[list[Trace], list[str]], Predictor]]:
    """The predictors compared, each made from runs and bound to a list of names."""
    return {
        "graphsage": lambda traces, names: learn(traces, names, "graphsage", epochs),
        "rgcn": lambda traces, names: learn(traces, names, "rgcn", epochs),
        "markov 1": lambda traces, names: fit(traces, 1, Roster(names)),
        "markov 5": lambda traces, names: fit(traces, 5, Roster(names)),
    }


def recorded(traces: list[Trace], count: int, epochs: int) -> dict[str, Any]:
    """{predictor: {moment: [summary of step 1, 2, 3]}} over all folds."""
    found: dict[str, Any] = {}
    for name, make in makers(epochs).items():
        pooled: dict[str, list[Score]] = {}
        for number, (others, fold) in enumerate(folds(traces, count, 0), 1):
            names: list[str] = []
            for moment, scores in judge(make(others, names), fold, names, steps=STEPS).items():
                for total, score in zip(pooled.setdefault(moment, [Score() for _ in range(STEPS)]), scores, strict=True):
                    total.extend(score)
            print(f"{name}: fold {number} of {count}", file=sys.stderr, flush=True)
        found[name] = {moment: [score.summary() for score in scores] for moment, scores in pooled.items()}
    return found


def synthetic(runs: int, epochs: int) -> dict[str, Any]:
    """The same on generators: training and test runs are from different seeds, and the generator's own distribution is the bound."""
    from pbkv.workloads.bayes import Bayes
    from pbkv.workloads.hover_like import HoverLike
    from pbkv.workloads.swe_like import SweLike

    found: dict[str, Any] = {}
    for workload in (HoverLike(), SweLike()):
        train, test = from_workload(workload, runs, 1), from_workload(workload, runs // 2, 2)
        process = workload.process
        every = makers(epochs) | {"bound": lambda _, names, process=process: Bayes(process, Roster(names))}
        for name, make in every.items():
            names: list[str] = []
            found.setdefault(workload.name, {})[name] = evaluate(make(train, names), test, names, steps=STEPS)
            print(f"{workload.name}: {name}", file=sys.stderr, flush=True)
    return found


def table(result: dict[str, Any]) -> str:
    """The same for people."""
    lines = []
    for agents, times in result["network_us"].items():
        for what, us in times.items():
            lines.append(f"{agents:>3} agents  {what:<14} {us['median']:>9.1f} us median {us['fastest']:>9.1f} us fastest")
    lines += [f"{agents:>3} agents  online chain   {us:>9.2f} us amortised" for agents, us in result["online_us"].items()]
    for source in ("recorded", "synthetic"):
        for workload, predictors in result.get(source, {}).items():
            for name, moments in predictors.items():
                for moment, steps in moments.items():
                    cells = "  ".join(f"{s['accuracy']:.3f} (ece {s['ece']:.3f})" for s in steps)
                    lines.append(f"{workload:<26} {name:<10} {moment:<8} {cells}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, runs and epochs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--traces", type=Path, action="append", default=[], help="recorded runs to cross-validate on")
    parser.add_argument("--folds", type=int, default=5, help="how many folds")
    parser.add_argument("--synthetic", action="store_true", help="the generators too")
    options = parser.parse_args(argv)
    rounds, epochs, runs = (60, 4, 200) if options.quick else (300, 14, 1000)
    result: dict[str, Any] = {
        "network_us": {str(agents): network_us(agents, 128, rounds) for agents in (4, 8, 20)},
        "online_us": {str(agents): online_us(agents) for agents in (4, 8, 20)},
    }
    result["recorded"] = {path.stem: recorded(load_traces([path]), options.folds, epochs) for path in options.traces}
    if options.synthetic:
        result["synthetic"] = synthetic(runs, epochs)
    print(json.dumps(result, indent=2) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
