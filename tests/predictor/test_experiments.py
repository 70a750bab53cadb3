"""The predictors of experiments: the true future, a spoilt one, and one that knows nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.knobs import K_MAX
from pbkv.predictor.base import Moment, Prediction
from pbkv.predictor.names import Roster
from pbkv.predictor.noisy import Noisy
from pbkv.predictor.perfect import Perfect
from pbkv.predictor.uniform import Uniform

NAMES = ["plan", "code", "test"]
FUTURES = {"w": ["plan", "code", "test", "code"], "long": ["plan", "code", "test"] * 10}


def at(calls: int, workflow: str = "w", *, reply: bool = False) -> Moment:
    return Moment(workflow, [0], calls, reply)


def argmax(visit: dict[int, float]) -> int:
    return max(visit, key=visit.__getitem__)


def noisy(p: float, seed: int = 0) -> Noisy:
    roster = Roster(NAMES)
    return Noisy(Perfect(FUTURES, roster), p, roster, seed)


# ---- names -----------------------------------------------------------------------------------------------------------------


def test_a_roster_follows_the_list_it_was_given() -> None:
    names = ["a"]
    roster = Roster(names)
    assert (roster.id("a"), roster.id("b")) == (0, None)
    names.append("b")
    assert roster.id("b") == 1
    roster.bind(["b"])
    assert (roster.id("b"), roster.id("a")) == (0, None)


# ---- perfect ---------------------------------------------------------------------------------------------------------------


def test_the_true_future_and_its_end() -> None:
    prediction = Perfect(FUTURES, Roster(NAMES)).predict(at(1))
    assert prediction.visits[:3] == ({1: 1.0}, {2: 1.0}, {1: 1.0})
    assert prediction.visits[3:] == ({},) * (K_MAX - 3)
    assert prediction.ends == (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    assert [prediction.survival(k) for k in (1, 4, 5)] == [1.0, 1.0, 0.0]


def test_after_the_last_call_it_ends_at_once_and_after_that_nothing_comes() -> None:
    perfect = Perfect(FUTURES, Roster(NAMES))
    assert perfect.predict(at(4)).ends[0] == 1.0
    assert perfect.predict(at(5)).ends == (0.0,) * K_MAX
    assert not any(perfect.predict(at(5)).visits)


def test_an_end_beyond_the_horizon_is_not_seen() -> None:
    prediction = Perfect(FUTURES, Roster(NAMES)).predict(at(3, "long"))
    assert prediction.ends == (0.0,) * K_MAX
    assert [argmax(v) for v in prediction.visits] == [0, 1, 2, 0, 1, 2, 0, 1]


def test_what_it_does_not_know_it_leaves_out() -> None:
    assert Perfect(FUTURES, Roster(NAMES)).predict(at(1, "other")) == Prediction()
    names = ["plan", "code"]
    perfect = Perfect(FUTURES, Roster(names))
    assert perfect.predict(at(1)).visits[:3] == ({1: 1.0}, {}, {1: 1.0})
    names.append("test")
    assert perfect.predict(at(1)).visits[1] == {2: 1.0}


# ---- noisy -----------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 29), st.sampled_from([0.0, 0.2, 0.5, 1.0]), st.integers(0, 99))
def test_noise_keeps_the_probability_that_a_step_exists(calls: int, p: float, seed: int) -> None:
    clean, spoilt = noisy(0.0).predict(at(calls, "long")), noisy(p, seed).predict(at(calls, "long"))
    assert spoilt.ends == clean.ends
    assert [sum(v.values()) for v in spoilt.visits] == [sum(v.values()) for v in clean.visits]
    if p == 1.0:
        assert all(argmax(a) != argmax(b) for a, b in zip(spoilt.visits, clean.visits, strict=True) if b)
    if p == 0.0:
        assert spoilt == clean


def test_its_rate_is_p_and_every_wrong_agent_is_drawn() -> None:
    names = [f"a{n}" for n in range(5)]
    roster = Roster(names)
    futures = {f"w{n}": ["a0"] * 20 for n in range(400)}
    predictor = Noisy(Perfect(futures, roster), 0.3, roster)
    seen = [argmax(v) for name in futures for v in predictor.predict(Moment(name, [0], 3)).visits]
    assert sum(a != 0 for a in seen) / len(seen) == pytest.approx(0.3, abs=0.03)
    for agent in range(1, 5):
        assert seen.count(agent) / len(seen) == pytest.approx(0.075, abs=0.02)


def test_the_same_mistakes_again_and_at_the_reply_and_with_more_noise() -> None:
    some, more, other = noisy(0.3), noisy(0.6), noisy(0.3, seed=1)
    moments = [at(n, "long") for n in range(1, 20)]
    first = [some.predict(m) for m in moments]
    assert [noisy(0.3).predict(at(n, "long", reply=True)) for n in range(1, 20)] == first
    assert [other.predict(m) for m in moments] != first
    clean = [noisy(0.0).predict(m) for m in moments]
    for spoilt, worse, true in zip(first, [more.predict(m) for m in moments], clean, strict=True):
        for a, b, c in zip(spoilt.visits, worse.visits, true.visits, strict=True):
            assert a in (b, c)


def test_with_one_agent_there_is_nothing_wrong_to_draw() -> None:
    roster = Roster(["plan"])
    assert Noisy(Perfect({"w": ["plan"] * 3}, roster), 1.0, roster).predict(at(1)).visits[0] == {0: 1.0}


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_a_noise_that_is_no_probability_is_refused(p: float) -> None:
    with pytest.raises(UsageError, match=r"noise p = .*expected a probability from 0 to 1"):
        noisy(p)


# ---- uniform ---------------------------------------------------------------------------------------------------------------


def test_equal_shares_for_whoever_was_met() -> None:
    names = ["a"]
    uniform = Uniform(Roster(names))
    assert uniform.predict(at(1)).visits[0] == {0: 0.5}
    names += ["b", "c"]
    prediction = uniform.predict(at(1))
    assert prediction.visits[0] == {0: 0.25, 1: 0.25, 2: 0.25}
    for k in range(1, K_MAX + 1):
        assert sum(prediction.visits[k - 1].values()) + prediction.ends[k - 1] == pytest.approx(prediction.survival(k))
    assert prediction.survival(3) == pytest.approx(0.75**2)


def test_nobody_met_means_nothing_known() -> None:
    assert Uniform(Roster()).predict(at(1)) == Prediction()


def test_learning_changes_none_of_them() -> None:
    roster = Roster(NAMES)
    for predictor in (Perfect(FUTURES, roster), noisy(0.5), Uniform(roster)):
        before = predictor.predict(at(2, "long"))
        predictor.observe([0], 1)
        assert predictor.predict(at(2, "long")) == before
        assert not predictor.at_reply
