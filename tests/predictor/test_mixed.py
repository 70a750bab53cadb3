"""The mixture: a new agent graph is usable within 50 calls, a good trained predictor stays in charge, memory is bounded."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv.knobs import K_MAX
from pbkv.predictor import mixed
from pbkv.predictor.base import END, Moment, Prediction
from pbkv.predictor.markov import OnlineMarkov
from pbkv.predictor.mixed import Mixed, mix
from pbkv.predictor.names import Roster
from pbkv.predictor.perfect import Perfect
from pbkv.predictor.uniform import Uniform
from tests.predictor.conftest import AGENTS
from tests.predictor.test_learned import serve

CHAIN = ["Intake", "Lawyer", "Auditor", "Clerk", "Archivist"]


def play(predictor, workflows: int, agents: list[int], name: str = "w") -> list[bool]:
    """Chains of these agents; whether the first guess for the next call was right, call by call."""
    hits = []
    for n in range(workflows):
        path: list[int] = []
        guess = None
        for agent in agents:
            predictor.observe(path, agent)
            if guess is not None:
                hits.append(guess == agent)
            path.append(agent)
            visit = predictor.predict(Moment(f"{name}{n}", path, len(path))).visits
            guess = max(visit[0], key=visit[0].__getitem__, default=END) if visit else END
        predictor.observe(path, END)
    return hits


def test_a_new_agent_graph_is_usable_within_50_calls(trained) -> None:
    """The trained network knows none of these agents; alone it stays wrong."""
    names = [*AGENTS, *CHAIN]
    chain = list(range(len(AGENTS), len(names)))
    alone = play(serve(trained, names), 20, chain)
    both = play(Mixed(serve(trained, names)), 20, chain)
    assert sum(alone[40:]) / len(alone[40:]) < 0.7
    assert sum(both[40:]) / len(both[40:]) > 0.95


def test_where_the_trained_one_is_right_it_stays_in_charge() -> None:
    """a and b take turns after c by the number of the workflow: the chain cannot know, the trained one does."""
    names = ["a", "b", "c"]
    futures = {f"w{n}": ["c", "a" if n % 2 else "b"] for n in range(400)}
    predictor = Mixed(Perfect(futures, Roster(names)))
    for name, calls in futures.items():
        path = [2]
        predictor.observe([], 2)
        visits = predictor.predict(Moment(name, path, 1)).visits
        agent = names.index(calls[1])
        assert max(visits[0], key=visits[0].__getitem__) == agent
        predictor.observe(path, agent)
        predictor.predict(Moment(name, [2, agent], 2))
        predictor.observe([2, agent], END)
    assert predictor.weights(2)[0] > 0.999


def test_old_evidence_fades() -> None:
    """A trained predictor that was right and then no longer is loses its say as soon as the chain has caught up."""
    names = ["a", "b"]
    futures = {f"w{n}": ["a", "a"] for n in range(100)}
    predictor = Mixed(Perfect(futures, Roster(names)))
    for n in range(100):
        came = 0 if n < 20 else 1
        predictor.predict(Moment(f"w{n}", [0], 1))
        predictor.observe([0], came)
        predictor.predict(Moment(f"w{n}", [0, came], 2))
        if n == 19:
            assert predictor.weights(0)[0] > 0.5
    assert predictor.weights(0)[0] < 0.01


def test_a_prediction_at_the_reply_takes_the_place_of_that_at_prefill() -> None:
    predictor = Mixed(Uniform(Roster(["a", "b"])))
    predictor.predict(Moment("w", [0], 1))
    predictor.predict(Moment("w", [0], 1, True))
    assert [pair[0] for pair in predictor._pending["w"]] == [1]


def test_steps_are_scored_at_their_own_distance() -> None:
    names = ["a", "b"]
    predictor = Mixed(Perfect({"w": ["a", "b", "b", "b"]}, Roster(names)))
    for n, path in enumerate(([0], [0, 1], [0, 1, 1]), 1):
        predictor.predict(Moment("w", path, n))
    start = predictor.weights(99)
    assert start == pytest.approx([0.9] * K_MAX)
    after_a, after_b = predictor.weights(0), predictor.weights(1)
    assert after_a[0] > start[0] and after_a[1] > start[1] and after_a[2] == start[2]
    assert after_b[0] > start[0] and after_b[1] == start[1]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "MAX_WORKFLOWS", 10)
    monkeypatch.setattr(mixed, "MAX_AGENTS", 5)
    predictor = Mixed(Uniform(Roster(["a"])))
    for n in range(100):
        predictor.predict(Moment(f"w{n}", [n], 1))
        predictor.predict(Moment(f"w{n}", [n, n], 2))
        for calls in range(3, 20):
            predictor.predict(Moment(f"w{n}", [n] * calls, calls))
    assert len(predictor._pending) <= 10
    assert len(predictor._evidence) <= 5
    assert max(map(len, predictor._pending.values())) <= K_MAX


def test_the_same_questions_get_the_same_answers() -> None:
    def ask() -> Sequence[Prediction]:
        predictor = Mixed(Uniform(Roster(list("abc"))), OnlineMarkov())
        answers = []
        for n in range(200):
            path = [(n * 7 + i * i) % 3 for i in range(n % 5 + 1)]
            predictor.observe(path[:-1], path[-1])
            answers.append(predictor.predict(Moment(f"w{n % 9}", path, len(path))))
        return answers

    assert ask() == ask()


PARTS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=K_MAX, max_size=K_MAX)


def chained(parts: list[tuple[float, float]]) -> Prediction:
    """A prediction whose step k, given that it exists, ends with probability e and else is agent 0 with probability a."""
    visits, ends, alive = [], [], 1.0
    for end, agent in parts:
        visits.append({0: alive * (1 - end) * agent, 1: alive * (1 - end) * (1 - agent)})
        ends.append(alive * end)
        alive *= 1 - end
    return Prediction(tuple(visits), tuple(ends))


@settings(deadline=None, derandomize=True)
@given(PARTS, PARTS, st.lists(st.floats(0, 1), min_size=K_MAX, max_size=K_MAX))
def test_a_mixture_is_a_distribution_at_each_step(one, other, weights) -> None:
    prediction = mix(chained(one), chained(other), weights)
    for k in range(1, K_MAX + 1):
        total = sum(prediction.visits[k - 1].values()) + prediction.ends[k - 1]
        both_alive = chained(one).survival(k) > 1e-6 and chained(other).survival(k) > 1e-6
        if both_alive:
            assert total == pytest.approx(prediction.survival(k), abs=1e-6)
        assert total <= 1 + 1e-9


def test_weights_of_one_and_nothing() -> None:
    one, other = chained([(0.1, 0.9)] * K_MAX), chained([(0.3, 0.2)] * K_MAX)
    for weights, expected in (([1.0] * K_MAX, one), ([0.0] * K_MAX, other)):
        found = mix(one, other, weights)
        assert found.ends == pytest.approx(expected.ends)
        assert all(a == pytest.approx(b) for a, b in zip(found.visits, expected.visits, strict=True))
    assert mix(one, Prediction(), [0.0] * K_MAX) is one and mix(Prediction(), other, [1.0] * K_MAX) is other
    assert Mixed(Uniform(Roster())).predict(Moment("w", [0], 1)) == Prediction()
