"""First use: the score against a brute-force oracle, and what it learns from three prompt layouts."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv.eviction.catalog import decision_of
from pbkv.eviction.first_use import STALE, TAIL, FirstUse
from pbkv.identity import CallIdentity
from pbkv.knobs import K_MAX, KnobSet
from pbkv.predictor.base import Moment, Prediction
from pbkv.reads import Reads
from pbkv.record import PROMPT, SCORE_ONE, Access, NodeRecord
from pbkv.state import CacheState
from tests.core.fakes import Notes, Scripted, record, workflow

STEPS = st.lists(st.dictionaries(st.integers(0, 4), st.floats(0, 1), max_size=5), min_size=1, max_size=K_MAX)


def prediction(*steps: dict[int, float]) -> Prediction:
    return Prediction(steps, (0.0,) * len(steps))


def about(score: float) -> object:
    """Up to the steps in which scores are told apart."""
    return pytest.approx(score, abs=3e-6)


def literal_policy(**parts: bool) -> FirstUse:
    return FirstUse(Reads(), structural_reads=False, **parts)


def score_of(policy: FirstUse, predicted: Prediction, agents: dict[int, int], gamma: float = 0.8, k: int = K_MAX) -> tuple[float, float]:
    w, access = workflow("w"), Access(next(iter(agents)), PROMPT, 0)
    access.agents = agents
    w.prediction = predicted
    w.plan = policy.plan(w, gamma, k)
    score, value = policy.score(w, access)
    return score / SCORE_ONE, value / SCORE_ONE


@settings(deadline=None, derandomize=True)
@given(STEPS, st.sets(st.integers(0, 4), min_size=1), st.floats(0, 1), st.integers(1, K_MAX))
def test_the_score_is_the_first_passage_sum(steps: list[dict[int, float]], agents: set[int], gamma: float, k: int) -> None:
    scaled = [{a: p / max(1.0, sum(s.values())) for a, p in s.items() if p / max(1.0, sum(s.values())) >= 1e-3} for s in steps]
    q = [sum(p for a, p in s.items() if a in agents) for s in scaled[:k]]
    expected, alive = 0.0, 1.0
    for n, each in enumerate(q):
        expected += gamma**n * alive * each
        alive *= max(0.0, 1.0 - each)
    expected += TAIL * gamma ** len(q) * alive  # the workflow of this test never ends
    score, value = score_of(literal_policy(), prediction(*scaled), dict.fromkeys(agents, 0), gamma, k)
    assert score == pytest.approx(expected, abs=3e-6)
    assert value == pytest.approx(q[0], abs=1e-9)
    assert score <= 1.0 + TAIL + 1e-6, "a node need only be there once"


def test_a_certain_future_is_worth_its_first_visit_alone() -> None:
    twice = prediction({0: 1.0}, {1: 1.0}, {0: 1.0})
    assert score_of(literal_policy(), twice, {0: 0}, gamma=0.5) == (about(1.0), 1.0)
    assert score_of(literal_policy(), twice, {1: 0}, gamma=0.5) == (about(0.5), 0.0)
    assert score_of(literal_policy(first_passage=False), twice, {0: 0}, gamma=0.5) == (about(1.25 + TAIL / 8), 1.0)


def test_beyond_the_horizon_counts_who_may_read_and_whether_the_workflow_goes_on() -> None:
    later = prediction({1: 1.0}, {1: 1.0})
    assert score_of(literal_policy(), later, {0: 0}, gamma=0.5) == (about(TAIL / 4), 0.0)
    nobody = prediction({}, {})  # goes on, with agents too unlikely each to be named
    assert score_of(literal_policy(), nobody, {0: 0}, gamma=0.5) == (about(TAIL / 4), 0.0)
    ends = Prediction(({1: 0.5}, {}), (0.5, 0.5))
    assert score_of(literal_policy(), ends, {0: 0}, gamma=0.5) == (0.0, 0.0)


def test_among_equals_the_workflow_that_called_first_is_kept() -> None:
    policy, first, second = literal_policy(), workflow("first", 1), workflow("second", 2)
    records = []
    for w in (first, second):
        w.prediction = prediction({0: 0.5})
        w.plan = policy.plan(w, 0.8, 3)
        made = record()
        made.score = policy.score(w, Access(0, PROMPT, 0))[0]
        records.append(made)
    kept, goes = records
    assert policy.key(goes) < policy.key(kept)
    assert policy.level(goes) == policy.level(kept)
    assert decision_of(policy, goes, kept) == "tie"


def test_nothing_predicted_is_worth_nothing() -> None:
    assert score_of(literal_policy(), Prediction(), {0: 0}) == (0.0, 0.0)


def test_an_agent_below_notice_is_left_out_of_the_plan() -> None:
    w = workflow("w")
    w.prediction = prediction({0: 0.9, 1: 1e-5}, {1: 1e-4})
    plan = literal_policy().plan(w, 0.8, 8)
    assert plan is not None
    assert plan.agents == (0,)


# ---- layouts ---------------------------------------------------------------------------------------------------------------------


class Layout:
    """Plays workflows of agents a, b, c in one prompt layout on records, without a cache: what first use makes of it."""

    def __init__(self, **parts: bool) -> None:
        self.reads = Reads()
        self.policy = FirstUse(self.reads, **parts)
        self.predictor = Uniform()
        self.state = CacheState(KnobSet(), self.predictor, self.policy, self.reads, Notes())
        self.rng = random.Random(5)
        self.names = itertools.count()
        self.roots = {agent: record() for agent in "abc"}
        self.root = record()

    def call(self, name: str, agent: str, prompt: list[NodeRecord], output: NodeRecord) -> None:
        w, number = self.state.begin_call(CallIdentity(name, agent, False))
        self.state.touch(w, number, prompt)
        self.state.touch(w, number, [*prompt, output], output=True)
        self.state.end_call(w)

    def private(self, calls: int = 8) -> dict[str, list[NodeRecord]]:
        """[agent's prompt][its own history]; returns the histories of a workflow still alive."""
        name, own = f"w{next(self.names)}", {agent: [] for agent in "abc"}
        for _ in range(calls):
            agent = self.rng.choice("abc")
            new, output = record(), record()
            self.call(name, agent, [self.roots[agent], *own[agent], new], output)
            own[agent] += [new, output]
        return own

    def shared(self, calls: int = 8) -> tuple[list[NodeRecord], list[NodeRecord]]:
        """[root][context of all][instruction of the agent]; returns context and instructions of a workflow still alive."""
        name, context, suffixes = f"w{next(self.names)}", [self.root], []
        for _ in range(calls):
            new, suffix, output = record(), record(), record()
            self.call(name, self.rng.choice("abc"), [*context, new, suffix], output)
            context.append(new)
            suffixes += [suffix, output]
        return context[1:], suffixes


class Uniform(Scripted):
    """Every agent equally likely, for ever."""

    def predict(self, moment: Moment) -> Prediction:
        return prediction(*({0: 1 / 3, 1: 1 / 3, 2: 1 / 3} for _ in range(K_MAX)))


def finish(layout: Layout) -> None:
    for name in list(layout.state.live):
        layout.state.close(name)


def test_private_histories_are_read_by_their_agent_alone() -> None:
    layout = Layout()
    for _ in range(30):
        layout.private()
        finish(layout)
    own = layout.private(calls=12)
    scores = [r.score / SCORE_ONE for records in own.values() for r in records]
    # First visit of one agent in three within k = 3 steps, and what lies beyond.
    one_of_three = sum(0.8**n * (2 / 3) ** n / 3 for n in range(3)) + TAIL * 0.8**3 * (2 / 3) ** 3
    assert scores == [pytest.approx(one_of_three, rel=0.1)] * len(scores)


def test_shared_context_is_read_by_whoever_is_next_and_suffixes_by_nobody() -> None:
    layout = Layout()
    for _ in range(30):
        layout.shared()
        finish(layout)
    context, suffixes = layout.shared(calls=6)
    assert min(r.score for r in context[:-1]) > 0.9 * SCORE_ONE
    assert max(r.score for r in suffixes[:-2]) < STALE, "suffixes that were gone around are stale"
    # What the newest call wrote has not been told apart yet: half of such nodes are context and half are not. Its output is never read.
    assert suffixes[-2].score == context[-1].score
    assert suffixes[-1].score < STALE
    assert all(layout.policy.key(r)[0] == 0.0 for r in suffixes[:-2])


def test_the_literal_rule_knows_neither() -> None:
    layout = Layout(structural_reads=False)
    for _ in range(30):
        layout.shared()
        finish(layout)
    _, suffixes = layout.shared(calls=6)
    assert min(r.score for r in suffixes) > 0.3 * SCORE_ONE, "whoever wrote it is expected back"


def test_learning_costs_nothing_when_nobody_scores() -> None:
    layout = Layout()
    layout.state.score_from_now_on(False)
    layout.shared()
    assert not layout.reads._pairs
    assert not any(w.prediction.visits for w in layout.state.live.values())
    layout.state.score_from_now_on(True)
    assert all(w.prediction.visits for w in layout.state.live.values())


@given(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 2 * STALE), st.booleans(), st.booleans(), st.booleans())
def test_the_order_begins_with_what_is_dead(
    touched: bool, live: bool, anonymous: bool, score: int, held: bool, stale: bool, hold: bool,
) -> None:
    policy, node = literal_policy(stale=stale, hold=hold), record()
    node.touched, node.anonymous, node.score = touched or live, anonymous, score
    if live:
        node.live[workflow("w")] = Access(0, PROMPT, 0)
    if held:
        node.holds = {1: None}
    assert (policy.key(node)[0] == 0.0) is policy.is_dead(node)
