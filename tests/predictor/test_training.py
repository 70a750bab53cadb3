"""Training: deterministic, resumable to the bit, stopped when it no longer helps, calibrated; both backbones."""

import math

import numpy as np
import pytest

from pbkv.errors import PbkvError, UsageError
from pbkv.predictor import calibration, resume
from pbkv.predictor.dataset import Trace, from_workload
from pbkv.predictor.evaluate import evaluate
from pbkv.predictor.names import Roster
from pbkv.predictor.train import Recipe, Trainer, use_threads
from pbkv.workloads.swe_like import SweLike
from tests.predictor.conftest import runs
from tests.predictor.test_learned import serve

SMALL = Recipe(epochs=3, batch=256)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    use_threads(1)


def make(recipe: Recipe = SMALL, seed: int = 0, *, texts: int = 0) -> Trainer:
    return Trainer(runs(30, seed, texts=texts), runs(10, seed + 1, texts=texts), recipe)


def to_the_end(trainer: Trainer) -> dict[str, np.ndarray]:
    while not trainer.done:
        trainer.run_epoch()
    return trainer.finish()[0]


@pytest.mark.parametrize("backbone", ["graphsage", "rgcn"])
def test_a_killed_training_ends_like_one_that_was_not(tmp_path, backbone: str) -> None:
    recipe = Recipe(backbone=backbone, epochs=3, batch=256)
    straight = to_the_end(make(recipe, texts=4))
    stopped = make(recipe, texts=4)
    stopped.run_epoch()
    stopped.run_epoch()
    resume.keep(tmp_path, stopped)
    again = make(recipe, texts=4)
    assert resume.resume(tmp_path, again) == "going on after epoch 2"
    ended = to_the_end(again)
    assert ended.keys() == straight.keys()
    assert all((ended[name] == straight[name]).all() for name in straight)
    resume.drop(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_state_of_another_training_is_left_aside(tmp_path) -> None:
    first = make()
    first.run_epoch()
    resume.keep(tmp_path, first)
    for other in (make(seed=5), make(Recipe(epochs=4, batch=256)), make(Recipe(epochs=3, batch=256, backbone="rgcn"))):
        assert "not of this training" in resume.resume(tmp_path, other)
        assert other.epoch == 0


@pytest.mark.parametrize("name", [resume.STATE, "training.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 64, b"[1, 2]"])
def test_a_damaged_state_is_left_aside(tmp_path, name: str, content: bytes) -> None:
    first = make()
    first.run_epoch()
    resume.keep(tmp_path, first)
    (tmp_path / name).write_bytes(content)
    fresh = make()
    assert "starting anew" in resume.resume(tmp_path, fresh)
    assert fresh.epoch == 0


def test_files_of_different_epochs_are_noticed(tmp_path) -> None:
    first = make()
    first.run_epoch()
    resume.keep(tmp_path, first)
    plain = (tmp_path / "training.json").read_bytes()
    first.run_epoch()
    resume.keep(tmp_path, first)
    (tmp_path / "training.json").write_bytes(plain)
    assert "different epochs" in resume.resume(tmp_path, make())


def test_nothing_to_resume(tmp_path) -> None:
    assert resume.resume(tmp_path / "new", make()) == ""


def test_it_stops_when_the_validation_loss_no_longer_falls() -> None:
    trainer = make(Recipe(epochs=50, patience=2, batch=256))
    losses = iter([1.0, 0.5, 0.6, 0.7, 0.1])
    trainer.loss = lambda: next(losses)  # type: ignore[method-assign]
    while not trainer.done:
        trainer.run_epoch()
    assert (trainer.epoch, trainer.best_epoch, trainer.best_loss) == (4, 2, 0.5)


def test_a_training_that_diverged_says_so() -> None:
    trainer = make()
    trainer.loss = lambda: math.nan  # type: ignore[method-assign]
    trainer.run_epoch()
    with pytest.raises(PbkvError, match="diverged"):
        trainer.finish()


def test_about_350_thousand_numbers_at_the_width_of_a_served_model() -> None:
    """The paper's size: 327,680 of them project a hidden state of 5,120 to 64."""
    trainer = make(texts=5120)
    assert trainer.network.project.weight.numel() == 327_680
    assert 327_680 < trainer.parameters < 385_000


def test_more_agents_than_can_be_served_are_refused_before_the_work() -> None:
    with pytest.raises(UsageError, match="name 604 agents: expected fewer than 512"):
        Trainer([Trace("w", tuple(f"a{n}" for n in range(600)))], runs(2), SMALL)


def test_agents_of_the_validation_runs_alone_are_no_obstacle() -> None:
    train, validation = runs(20), runs(5, 1)
    odd = [type(t)(t.name, ("Stranger", *t.agents)) for t in validation]
    trainer = Trainer(train, odd, SMALL)
    assert math.isfinite(trainer.run_epoch())
    assert "Stranger" in trainer.names


def test_it_beats_a_guess_by_the_newest_agent_where_the_path_matters() -> None:
    """Software repair as generated: run lengths decide, which one agent alone does not tell."""
    train, validation, test = (from_workload(SweLike(), count, seed) for count, seed in ((200, 1), (40, 2), (40, 3)))
    trainer = Trainer(train, validation, Recipe(epochs=8))
    while not trainer.done:
        trainer.run_epoch()
    names: list[str] = []
    network = evaluate(serve((*trainer.finish(), trainer), names), test, names, steps=3)["prefill"]
    from pbkv.predictor.backoff import fit

    names = []
    first_order = evaluate(fit(train, 1, Roster(names)), test, names, steps=3)["prefill"]
    assert all(a["accuracy"] > b["accuracy"] + 0.01 for a, b in zip(network, first_order, strict=True))


# ---- calibration -----------------------------------------------------------------------------------------------------------


def sharpened(by: float, wrong: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of outcomes whose true distribution is softmax(logits / by), but for a share that is anything."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(6000, 8, 5)) * 2
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    targets = (rng.random((6000, 8, 1)) > p.cumsum(-1)).sum(-1).clip(max=4)
    odd = rng.random(targets.shape) < wrong
    targets[odd] = rng.integers(0, 5, odd.sum())
    return (logits * by).astype(np.float32), targets


@pytest.mark.parametrize("by", [0.5, 1.0, 2.0])
def test_the_temperature_is_found(by: float) -> None:
    for temperature, doubt in calibration.fit(*sharpened(by)):
        assert temperature == pytest.approx(by, rel=0.1)
        assert doubt <= 0.02


def test_outcomes_that_nobody_could_foresee_are_doubt_and_not_temperature() -> None:
    for temperature, doubt in calibration.fit(*sharpened(1.0, wrong=0.05)):
        assert temperature == pytest.approx(1.0, rel=0.15)
        assert doubt >= 0.03


def test_few_outcomes_change_nothing() -> None:
    logits, targets = sharpened(3.0)
    targets[calibration.MIN_OUTCOMES - 1 :, 4] = -1
    assert calibration.fit(logits, targets)[4] == (1.0, calibration.DOUBTS[1])
