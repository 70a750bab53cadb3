"""Small runs, and one network trained on them."""

import itertools
import random

import numpy as np
import pytest

from pbkv.predictor.dataset import Trace
from pbkv.predictor.features import normalised

AGENTS = ("Planner", "Coder", "Tester", "Reviewer")


def runs(count: int, seed: int = 0, *, texts: int = 0) -> list[Trace]:
    """Planner, then one to three Coder calls as the Planner's text says, then Tester; half the time once more, then Reviewer."""
    rng = random.Random(seed)
    made = []
    for n in range(count):
        agents: list[str] = []
        signals: list[list[float]] = []
        for _ in range(rng.randint(1, 2)):
            length = rng.randint(1, 3)
            agents += ["Planner", *["Coder"] * length, "Tester"]
            signals += [[float(i == length) for i in range(max(texts, 1))]] * (length + 2)
        agents.append("Reviewer")
        signals.append([1.0] * max(texts, 1))
        made.append(Trace(f"run-{seed}-{n}", tuple(agents), normalised(np.array(signals, np.float32)) if texts else None))
    return made


@pytest.fixture(scope="session")
def trained():
    """(weights, config) of a network trained on `runs` with text signals of length 8."""
    import torch

    from pbkv.predictor.train import Recipe, Trainer

    torch.set_num_threads(1)
    trainer = Trainer(runs(120, texts=8), runs(30, 1, texts=8), Recipe(epochs=6, batch=256))
    for _ in itertools.takewhile(lambda _: not trainer.done, itertools.count()):
        trainer.run_epoch()
    return *trainer.finish(), trainer
