"""The online Markov predictor: proper probabilities, bounded tables, equal answers on all ranks, and it learns."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv.knobs import K_MAX
from pbkv.predictor.base import END, Moment, Prediction
from pbkv.predictor.markov import BEAM, MAX_AGENTS, MAX_SUCCESSORS, PRIOR, OnlineMarkov

TRANSITIONS = st.lists(st.tuples(st.integers(0, 7), st.integers(-1, 7)), max_size=60)


def learned(pairs: list[tuple[int, int]]) -> OnlineMarkov:
    predictor = OnlineMarkov()
    for previous, agent in pairs:
        predictor.observe([previous], agent)
    return predictor


def after(path: list[int]) -> Moment:
    return Moment("w", path, len(path))


@settings(deadline=None, derandomize=True)
@given(TRANSITIONS, st.integers(0, 9))
def test_each_step_is_a_distribution_over_agents_and_end(pairs: list[tuple[int, int]], current: int) -> None:
    prediction = learned(pairs).predict(after([current]))
    if not pairs:
        assert prediction == Prediction()
        return
    assert len(prediction.visits) == len(prediction.ends) == K_MAX
    for k in range(1, K_MAX + 1):
        visits, end = prediction.visits[k - 1], prediction.ends[k - 1]
        assert sum(visits.values()) + end == pytest.approx(prediction.survival(k), abs=1e-9)
        assert all(0.0 < p <= 1.0 + 1e-9 for p in visits.values())
        assert END not in visits
        assert -1e-12 <= end <= 1.0 + 1e-9
        assert prediction.survival(k) <= (prediction.survival(k - 1) if k > 1 else 1.0) + 1e-12


def test_nothing_seen_predicts_nothing() -> None:
    assert OnlineMarkov().predict(after([0])) == Prediction()
    assert learned([(0, 1)]).predict(after([])) == Prediction()


def test_the_first_agent_of_a_workflow_teaches_no_transition() -> None:
    predictor = OnlineMarkov()
    predictor.observe([], 3)
    assert predictor.predict(after([3])) == Prediction()


def test_one_transition_by_hand() -> None:
    """One a -> b seen: P(b | a) = (1 + PRIOR * 1) / (1 + PRIOR) = 1, and an agent never seen follows the overall share."""
    prediction = learned([(0, 1)]).predict(after([0]))
    assert prediction.visits[0] == {1: pytest.approx(1.0)}
    assert learned([(0, 1), (0, END)]).predict(after([9])).visits[0] == {1: pytest.approx(0.5)}
    mixed = learned([(0, 1), (0, 1), (1, END)])
    share = {1: 2 / 3, END: 1 / 3}
    assert mixed.predict(after([0])).visits[0][1] == pytest.approx((2 + PRIOR * share[1]) / (2 + PRIOR))
    assert mixed.predict(after([0])).ends[0] == pytest.approx(PRIOR * share[END] / (2 + PRIOR))


def test_a_chain_is_learned() -> None:
    predictor = learned([(0, 1), (1, 2), (2, END)] * 200)
    visits = predictor.predict(after([0])).visits
    assert max(visits[0], key=visits[0].__getitem__) == 1
    assert visits[0][1] > 0.98
    assert max(visits[1], key=visits[1].__getitem__) == 2
    assert predictor.predict(after([0])).ends[2] > 0.95
    assert predictor.predict(after([0])).survival(4) < 0.05


def test_a_cycle_goes_on_for_ever() -> None:
    prediction = learned([(0, 1), (1, 0)] * 500).predict(after([0]))
    assert prediction.survival(K_MAX) == pytest.approx(1.0, abs=1e-6)
    assert prediction.visits[K_MAX - 1][0] > 0.98


def test_only_the_newest_agent_counts() -> None:
    predictor = learned([(0, 1), (1, 2), (2, 0)] * 9)
    assert predictor.predict(after([0, 1, 2])) == predictor.predict(after([2]))


def test_two_ranks_that_saw_the_same_predict_bit_for_bit_the_same() -> None:
    rng = random.Random(3)
    pairs = [(rng.randrange(40), rng.randrange(-1, 40)) for _ in range(5000)]
    one, two = learned(pairs), learned(pairs)
    for agent in range(45):
        assert one.predict(after([agent])) == two.predict(after([agent]))


def test_asking_does_not_teach() -> None:
    predictor = learned([(0, 1), (1, END)])
    before = predictor.predict(after([0]))
    for _ in range(100):
        predictor.predict(after([1]))
    assert predictor.predict(after([0])) == before


def test_tables_are_bounded_whatever_names_callers_invent() -> None:
    predictor = OnlineMarkov()
    for n in range(MAX_AGENTS + 500):
        predictor.observe([n], n + 1)
    for n in range(MAX_SUCCESSORS + 300):
        predictor.observe([0], 10_000 + n)
    assert len(predictor._counts) == MAX_AGENTS
    assert max(map(len, predictor._counts.values())) == MAX_SUCCESSORS
    assert sum(predictor._share.values()) == predictor._seen == sum(predictor._totals.values())
    for previous, row in predictor._counts.items():
        assert sum(row.values()) == predictor._totals[previous]


def test_a_full_table_still_learns_what_it_knows() -> None:
    predictor = OnlineMarkov()
    for n in range(MAX_AGENTS):
        predictor.observe([n], n + 1)
    for _ in range(5000):
        predictor.observe([0], 1)
    assert predictor.predict(after([0])).visits[0][1] > 0.99


def test_the_look_ahead_is_bounded_and_stays_a_distribution() -> None:
    """With more agents than are followed, a step shows the likeliest and the ends still come from all of them."""
    rng, predictor = random.Random(1), OnlineMarkov()
    for _ in range(20_000):
        predictor.observe([rng.randrange(300)], rng.randrange(300) if rng.random() < 0.9 else END)
    prediction = predictor.predict(after([0]))
    for k in range(1, K_MAX + 1):
        visits = prediction.visits[k - 1]
        assert len(visits) <= BEAM
        assert sum(visits.values()) + prediction.ends[k - 1] <= prediction.survival(k) + 1e-9
    # One call in ten is the last, whichever agent it is: what is not followed must end at that rate too.
    for k in range(3, K_MAX):
        assert prediction.ends[k] / prediction.survival(k + 1) == pytest.approx(0.1, abs=0.02)


def test_what_is_kept_are_the_likeliest() -> None:
    predictor = learned([(0, 1)] * 500 + [(0, 2)] * 400 + [(0, n) for n in range(3, 203)])
    visits = predictor.predict(after([0])).visits[0]
    assert len(visits) == BEAM
    assert list(visits)[:2] == [1, 2]


@pytest.mark.parametrize("agents", [4, 20])
def test_a_kept_walk_knows_four_fifths_of_its_agent_and_half_of_all(agents: int) -> None:
    """The answer is always one that a fresh look gave at an earlier moment, and that moment is near enough."""
    rng, predictor, path = random.Random(7), OnlineMarkov(), [0]
    made: dict[int, tuple[Prediction, int, int]] = {}
    kept = 0
    for _ in range(3000):
        follower = min(rng.randrange(agents), rng.randrange(agents))
        predictor.observe(path, follower)
        path = [follower]
        total, seen = predictor._totals.get(follower, 0), predictor._seen
        prediction = predictor.predict(after(path))
        key = follower if total else END
        if key not in made or made[key][0] is not prediction:
            made[key] = (prediction, total, seen)
            assert prediction == predictor._walk(follower)
        kept += made[key][2] < seen
        assert total == made[key][1] or total * 4 < made[key][1] * 5
        assert seen < 2 * made[key][2]
    assert kept > 1500


def test_the_number_of_walks_grows_with_the_logarithm(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = 0
    walk = OnlineMarkov._walk

    def counted(self: OnlineMarkov, agent: int) -> Prediction:
        nonlocal walks
        walks += 1
        return walk(self, agent)

    monkeypatch.setattr(OnlineMarkov, "_walk", counted)
    rng, predictor, path = random.Random(7), OnlineMarkov(), [0]
    for n in range(1, 40_001):
        predictor.observe(path, follower := rng.randrange(4))
        path = [follower]
        predictor.predict(after(path))
        if n == 4_000:
            early = walks
    assert walks - early < early < 400


def test_agents_that_nothing_follows_share_one_walk() -> None:
    predictor = learned([(0, 1)] * 4)
    assert predictor.predict(after([8])) is predictor.predict(after([9]))
    for n in range(10, 5000):
        predictor.predict(after([n]))
    assert len(predictor._walks) == 1
