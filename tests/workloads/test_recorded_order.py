"""Recorded workloads as an order of steps: what holds of any order, and of the tokens of its calls."""

import itertools
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pbkv.workloads.tokens import Segment, TokenCall, TokenWorkflow
from tests.support.recorded import Tokens, cut, live_tokens, order, recorded

SEGMENTS = st.builds(Segment, st.integers(0, 50), st.integers(1, 400))
CALLS = st.builds(
    TokenCall, st.sampled_from("ab"), st.lists(SEGMENTS, min_size=1, max_size=4).map(tuple), SEGMENTS,
    st.floats(0, 10), st.just(False), st.none(),
)


@given(st.lists(st.lists(CALLS, min_size=1, max_size=5), min_size=1, max_size=8), st.integers(1, 4), st.integers(1, 3))
def test_every_call_begins_and_ends_once_and_in_turn(scripts: list[list[TokenCall]], concurrency: int, running: int) -> None:
    workflows = [TokenWorkflow(f"w{n}", tuple(calls)) for n, calls in enumerate(scripts)]
    live: dict[str, int] = {}
    begun: Counter[str] = Counter()
    queued: list[int] = []
    for step in order(workflows, concurrency, running):
        if step.kind == "queue":
            queued.append(step.number)
        elif step.kind == "begin":
            assert not queued or queued.pop(0) == step.number, "not first come, first served"
            assert step.workflow not in live, "two calls of one workflow at a time"
            assert step.call is scripts[int(step.workflow[1:])][begun[step.workflow]]
            live[step.workflow] = step.number
            begun[step.workflow] += 1
            assert len(live) <= running
        else:
            assert live.pop(step.workflow) == step.number
    assert not live and not queued
    assert begun == {f"w{n}": len(calls) for n, calls in enumerate(scripts)}


def test_the_order_is_the_same_every_time_and_the_load_is_kept_up() -> None:
    _, workflows = recorded("hyperagent", "private", max_calls=5)
    first, again = (list(itertools.islice(order(workflows, 6, 2), 200)) for _ in range(2))
    assert first == again
    assert sum(step.kind == "queue" for step in first) > 20


@given(st.lists(SEGMENTS, max_size=6), st.lists(SEGMENTS, max_size=6))
def test_prompts_share_exactly_what_their_segments_share(one: list[Segment], other: list[Segment]) -> None:
    tokens = Tokens()
    a, b = tokens.of(one).tolist(), tokens.of(other).tolist()
    shared = 0
    for x, y in zip(one, other, strict=False):
        shared += min(x.tokens, y.tokens) if x.key == y.key else 0
        if x != y:
            break
    assert sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))) == shared


def test_random_tokens_of_a_longer_segment_begin_like_those_of_a_shorter() -> None:
    tokens = Tokens(vocabulary=256, divisor=4)
    short, long = tokens.of([Segment(7, 40)]), tokens.of([Segment(7, 400)])
    assert (len(short), len(long)) == (10, 100)
    assert long[:10] == short
    assert max(long) < 256
    assert tokens.of([Segment(8, 400)]) != long
    assert len(tokens.of([Segment(9, 1)])) == 1


def test_what_an_unlimited_cache_would_keep_of_a_workflow() -> None:
    a, b, out = Segment(1, 10), Segment(2, 5), Segment(3, 1)
    calls = (TokenCall("x", (a,), out, 0.0), TokenCall("y", (a, b), out, 0.0))
    assert live_tokens([TokenWorkflow("w", calls)]) == (11 + 17) / 2


def test_without_recordings_a_generator_stands_in_and_says_so() -> None:
    for name in ("hyperagent", "ag2", "who_and_when"):
        source, workflows = recorded(name, "group", max_calls=7, data=Path("nowhere"))
        assert "generated" in source
        assert len(workflows) > 50
        assert all(1 <= len(w.calls) <= 7 and w.calls[-1].final for w in workflows)


def test_cutting_keeps_short_workflows_as_they_are() -> None:
    call = TokenCall("x", (Segment(1, 1),), Segment(2, 1), 0.0)
    workflow = TokenWorkflow("w", (call, call))
    assert cut(workflow, 2) is workflow
    assert cut(workflow, 0) is workflow
    assert [c.final for c in cut(TokenWorkflow("w", (call,) * 3), 2).calls] == [False, True]
