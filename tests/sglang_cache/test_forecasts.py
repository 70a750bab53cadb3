"""A trained predictor in the scheduler: once per step, on one rank, within its budget, and the same scores on all ranks."""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pbkv.events.wire import decode
from pbkv.knobs import K_MAX
from pbkv.predictor.base import Moment, Prediction
from pbkv.predictor.budget import Answer, Budgeted
from pbkv.predictor.mixed import Mixed
from pbkv.sglang.forecasts import Forecasts
from pbkv.sglang.ranks import FRAME, Ranks
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.test_calls import identity, request

PLUGIN = {"policy": "he", "prefetch": "off"}
A, B, C = list(range(100, 124)), list(range(200, 224)), list(range(300, 324))


class Trained:
    """Guesses that no other rank could make: its own dice. Keeps what it was asked, and fails while `broken`."""

    version, at_reply = 6, True

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.asked: list[list[Moment]] = []
        self.broken = False

    def observe(self, path: Sequence[int], agent: int) -> None: ...

    def predict(self, moment: Moment) -> Prediction:
        return self.predict_many([moment])[0]

    def predict_many(self, moments: Sequence[Moment]) -> list[Prediction]:
        if self.broken:
            raise RuntimeError("broken")
        self.asked.append(list(moments))
        return [self._guess() for _ in moments]

    def _guess(self) -> Prediction:
        shares = [self.rng.random() for _ in range(5)]
        visits = {agent: share / sum(shares) * 0.9 for agent, share in enumerate(shares)}
        return Prediction((visits,) * K_MAX, (0.1,) * K_MAX)


class Never(Trained):
    """On the ranks that do not predict."""

    def predict_many(self, moments: Sequence[Moment]) -> list[Prediction]:
        raise AssertionError("asked on a rank that is told")


def forecasting(trained: Trained, ranks: Ranks | None = None, budget_ns: int = 10**12, **options: Any) -> Bench:
    bench = Bench(plugin=PLUGIN, page=4, size=options.pop("size", 256), host=options.pop("host", None), **options)
    runtime = bench.runtime
    runtime.predictor = runtime.state.predictor = Mixed(trained)
    runtime.forecasts = Forecasts(runtime.state, Budgeted(runtime.predictor, budget_ns), ranks)
    return bench


# ---- one rank ----------------------------------------------------------------------------------------------------------------


def test_a_step_asks_once_for_all_workflows_it_concerned() -> None:
    trained = Trained()
    bench = forecasting(trained)
    for n, tokens in enumerate((A, B, C)):
        bench.call(f"w{n}", "a", tokens)
    assert trained.asked == []
    bench.runtime.settle()
    (moments,) = trained.asked
    assert [(m.workflow, m.calls, m.reply) for m in moments] == [(f"w{n}", 1, True) for n in range(3)]
    assert all(record.score > 0 for record in bench.records(A))
    bench.runtime.settle()
    assert len(trained.asked) == 1  # nothing is due


def test_ten_calls_of_one_workflow_in_a_step_are_one_question() -> None:
    trained = Trained()
    bench = forecasting(trained)
    reqs = [request(bench, A, custom=identity("w", f"agent {n}")) for n in range(10)]
    for req in reqs:
        bench.runtime.calls.checkpoint(req)
    bench.runtime.settle()
    assert [(m.workflow, m.calls, m.reply) for m in trained.asked[0]] == [("w", 10, False)]
    for req in reqs[:4]:
        bench.runtime.calls.finish(req)
    bench.runtime.settle()
    assert [(m.calls, m.reply) for m in trained.asked[1]] == [(10, True)]


def test_what_has_ended_is_not_asked_for() -> None:
    trained = Trained()
    bench = forecasting(trained)
    bench.call("closed", "a", A)
    bench.runtime.state.close("closed")
    bench.call("final", "a", B, final=True)
    bench.call("live", "a", C)
    bench.runtime.settle()
    assert [m.workflow for m in trained.asked[0]] == ["live"]
    bench.call("live", "b", C)
    running = request(bench, C, custom=identity("live", "c", final=True))
    bench.runtime.calls.checkpoint(running)  # says in the same step that nothing follows
    bench.runtime.settle()
    assert len(trained.asked) == 1
    assert bench.runtime.state.live["live"].prediction == Prediction()
    bench.check()


def test_a_plan_is_made_of_what_the_last_batch_brought() -> None:
    """Chunks are put into the tree while a batch is made up, after the last result: they are predicted before prefetch looks."""
    trained = Trained()
    bench = forecasting(trained)
    bench.call("w", "a", A)
    bench.runtime.after_plan(SimpleNamespace(waiting_queue=[]), None)
    assert len(trained.asked) == 1


def test_over_the_budget_and_after_failures_the_chain_answers_and_events_say_so() -> None:
    trained = Trained()
    bench = forecasting(trained, observe=True)
    forecasts, mixed = bench.runtime.forecasts, bench.runtime.predictor
    for agent in "abcde":
        bench.runtime.state.agent_id(agent)
    late = Budgeted(mixed, 10, itertools.count(0, 20).__next__)  # time that passes between two looks at the clock
    for n, asked in enumerate((forecasts.asked, late, late, Budgeted(mixed, 10**12))):
        forecasts.asked, trained.broken = asked, n == 3
        bench.call("w", "ab"[n % 2], A)
        bench.runtime.settle()
    assert late.counts == {"trained": 0, "budget": 2, "error": 0}
    bench.runtime.telemetry.end_step(1)
    versions = {row["predictor"] for payload in bench.sink.payloads for row in decode(payload).tables.get("prediction", ())}
    assert versions == {8, 1}
    counts = bench.runtime.forecasts.asked.counts
    assert counts == {"trained": 0, "budget": 0, "error": 1}
    told = json.loads(bench.runtime.commands.answer("state", "{}")[1])["predictor"]
    assert told == {**counts, "fault": "RuntimeError: broken", "signal": ""}
    assert not bench.runtime.guard.fault  # a predictor that fails is no fault of the cache


def test_a_fault_forgets_what_was_due() -> None:
    trained = Trained()
    bench = forecasting(trained)
    bench.call("w", "a", A)
    bench.runtime.guard.run(lambda: 1 / 0)
    bench.runtime.guard.run(bench.runtime.settle)
    patch = {"if_version": bench.runtime.knobs.version, "changes": {"policy": "he"}, "actor": "t"}
    assert bench.runtime.commands.answer("patch", json.dumps({"patch": patch, "wall_ns": 1}))[0] == 200
    bench.runtime.settle()
    assert trained.asked == []
    bench.call("w", "a", A)
    bench.runtime.settle()
    assert len(trained.asked) == 1


def test_a_chunked_prompt_is_asked_for_again_when_it_has_been_read() -> None:
    trained = Trained()
    bench = forecasting(trained)
    bench.runtime.hears = True  # as with hidden states
    req = request(bench, A[:12], custom=identity("w", "a"))
    req.output_ids = []
    bench.runtime.calls.checkpoint(req)
    bench.runtime.settle()
    req.last_node, req.output_ids = bench.put(A), [5]
    bench.runtime.calls.checkpoint(req)
    bench.runtime.settle()
    req.output_ids = [5, 6]
    bench.runtime.calls.checkpoint(req)
    bench.runtime.settle()
    assert [[m.reply for m in moments] for moments in trained.asked] == [[False], [False]]


# ---- several ranks -----------------------------------------------------------------------------------------------------------


class Wire:
    """A broadcast from one rank to another in the same thread: the leader goes first."""

    def __init__(self) -> None:
        self.sent: list[np.ndarray] = []
        self.messages = 0

    def send(self, numbers: np.ndarray) -> None:
        self.sent.append(numbers.copy())
        self.messages += 1

    def receive(self, numbers: np.ndarray) -> None:
        message = self.sent.pop(0)
        assert message.shape == numbers.shape and message.dtype == numbers.dtype, "ranks disagree about a collective"
        numbers[:] = message

    def ends(self) -> tuple[Ranks, Ranks]:
        return Ranks(True, self.send), Ranks(False, self.receive)


def path_of(bench: Bench, node: Any) -> tuple[int, ...]:
    """Ids of nodes are counted per process, so ranks in one process name nodes by their tokens."""
    above = () if node is bench.core.root_node else path_of(bench, node.parent)
    return (*above, *node.key.raw_token_ids()) if node is not bench.core.root_node else ()


def scores(bench: Bench) -> dict[tuple[int, ...], tuple[int, int]]:
    records = (node.__dict__.get("pbkv") for node in bench.nodes())
    return {path_of(bench, r.node): (r.score, r.value) for r in records if r is not None}


def leaves(bench: Bench) -> set[tuple[int, ...]]:
    return {path_of(bench, record.node) for record in bench.runtime.device._alive.values()}


def moves(seed: int) -> Iterator[tuple[str, Any]]:
    rng = random.Random(seed)
    for _ in range(90):
        what = rng.random()
        if what < 0.7:
            start = rng.randrange(6) * 40
            tokens = list(range(start, start + rng.randrange(4, 40)))
            yield "call", (f"w{rng.randrange(8)}", f"agent {rng.randrange(5)}", tokens, rng.random() < 0.05)
        elif what < 0.8:
            yield "evict", rng.randrange(4, 60)
        elif what < 0.85:
            yield "close", f"w{rng.randrange(8)}"
        else:
            yield "settle", None


def do(bench: Bench, what: str, body: Any) -> object:
    if what == "call":
        workflow, agent, tokens, final = body
        bench.call(workflow, agent, tokens, final=final)
    elif what == "evict":
        return bench.evict(body)
    elif what == "close":
        return bench.runtime.state.close(body)
    else:
        bench.runtime.settle()
    return None


@pytest.mark.parametrize("host", [None, 2.0])
@pytest.mark.parametrize(("seed", "budget_ns"), [(1, 10**12), (2, 10**12), (3, 1), (4, 100_000)])
def test_two_ranks_that_are_fed_the_same_score_and_evict_the_same(seed: int, budget_ns: int, host: float | None) -> None:
    """Although one guesses by dice and by the clock, and the other is only told."""
    wire = Wire()
    leader, follower = wire.ends()
    one = forecasting(Trained(seed), leader, budget_ns, size=160, host=host)
    other = forecasting(Never(), follower, budget_ns, size=160, host=host)
    for what, body in moves(seed):
        assert do(one, what, body) == do(other, what, body)
        assert scores(one) == scores(other), "bit for bit"
        assert leaves(one) == leaves(other)
        assert wire.sent == [], "both are at the same collective"
    assert wire.messages > 5
    assert one.runtime.counts == other.runtime.counts
    for bench in (one, other):
        bench.check()
        bench.close()


def test_where_nothing_is_due_there_is_no_collective() -> None:
    wire = Wire()
    leader, _ = wire.ends()
    bench = forecasting(Trained(), leader)
    for _ in range(5):
        bench.runtime.settle()
    bench.call("w", "a", A, final=True)
    bench.runtime.settle()
    assert wire.messages == 0
    bench.call("w", "a", A)
    bench.runtime.settle()
    assert wire.messages == 1


def test_more_than_a_frame_takes_a_second_message() -> None:
    wire = Wire()
    leader, follower = wire.ends()
    wide = Prediction((dict.fromkeys(range(64), 1 / 64),) * K_MAX, (0.0,) * K_MAX)
    for count in (1, 3, 4, 20):
        answers = [Answer(wide, n % 2 + 7) for n in range(count)]
        sent = leader.share(answers, count)
        assert len(wire.sent) == (1 if count * (2 + K_MAX * 130) <= FRAME else 2)
        assert follower.share((), count) == sent == answers
    assert leader.share([], 0) == follower.share((), 0) == []


def test_the_leader_uses_what_it_sent() -> None:
    wire = Wire()
    leader, _ = wire.ends()
    third = Answer(Prediction(({1: 1 / 3},) * K_MAX, (1 / 7,) * K_MAX), 8)
    (used,) = leader.share([third], 1)
    assert used != third and used.prediction.visits[0][1] == round(2**24 / 3) / 2**24
