"""What a server predicts with, from the folder its settings name."""

from pathlib import Path

import pytest

from pbkv.config import ServerConfig
from pbkv.errors import UsageError
from pbkv.predictor import backoff
from pbkv.predictor.base import Moment
from pbkv.predictor.load import serving_predictor
from pbkv.predictor.markov import OnlineMarkov
from pbkv.predictor.mixed import Mixed
from pbkv.predictor.names import Roster
from tests.predictor.test_backoff import saved


def test_without_a_folder_it_learns_as_it_serves() -> None:
    assert isinstance(serving_predictor(ServerConfig().predictor, Roster()), OnlineMarkov)


def test_a_trained_one_knows_names_from_its_first_call_and_goes_on_learning(tmp_path: Path) -> None:
    original = saved(tmp_path)
    assert isinstance(original, backoff.BackoffMarkov)
    names = list(original.roster.names)
    roster = Roster()
    predictor = serving_predictor(tmp_path, roster)
    assert isinstance(predictor, Mixed)
    met: list[str] = []
    roster.bind(met)
    met += names[::-1]  # a cache meets agents in an order of its own
    prediction = predictor.predict(Moment("w", [met.index(names[0])], 1))
    expected = original.predict(Moment("w", [0], 1))
    by_name = {met[agent]: p for agent, p in prediction.visits[0].items()}
    assert by_name == pytest.approx({names[agent]: p for agent, p in expected.visits[0].items()}, abs=1e-6)
    met.append("newcomer")
    for n in range(60):
        path = [met.index(names[0])]
        predictor.observe(path, met.index("newcomer"))
        predictor.predict(Moment(f"v{n}", path, 1))
        predictor.predict(Moment(f"v{n}", [*path, met.index("newcomer")], 2))
    after = predictor.predict(Moment("x", [met.index(names[0])], 1))
    assert after.visits[0][met.index("newcomer")] > 0.5, "a new habit is caught up with within tens of calls"


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_a_folder_that_is_none_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=str(tmp_path)):
        serving_predictor(str(tmp_path / name), Roster())
