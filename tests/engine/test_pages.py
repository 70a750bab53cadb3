"""Page ids say exactly what prompts share, whatever the page size."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.engine.pages import PageNamer
from pbkv.workloads.tokens import Segment

SEGMENTS = st.builds(Segment, st.integers(1, 3), st.sampled_from([0, 3, 3, 8]))  # few kinds, so that prompts often agree for a while
PROMPTS = st.lists(st.tuples(st.lists(SEGMENTS, max_size=5), SEGMENTS), min_size=1, max_size=12)


def contents(prompt: list[Segment]) -> list[tuple[int, int]]:
    """Every token by name: the key of its segment and its place in it."""
    return [(segment.key, n) for segment in prompt for n in range(segment.tokens)]


def shared(a: list[object], b: list[object]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def told_apart(prompt: list[Segment]) -> bool:
    """A segment that follows one of its own key would begin with that key's first token: such prompts are not what workloads make."""
    return all(a.key != b.key for a, b in itertools.pairwise(s for s in prompt if s.tokens))


@given(PROMPTS, st.sampled_from([1, 2, 4, 7]))
def test_equal_ids_exactly_for_equal_beginnings(calls: list[tuple[list[Segment], Segment]], page: int) -> None:
    namer = PageNamer(page)
    named = []
    for prompt, output in calls:
        if not told_apart([*prompt, output]):
            continue
        tokens, ids, more = namer.call(tuple(prompt), output)
        assert tokens == sum(s.tokens for s in prompt)
        assert len(ids) == tokens // page
        assert len(ids) + len(more) == (tokens + output.tokens) // page
        named.append((contents([*prompt, output]), ids + more))
    for first, first_ids in named:
        for second, second_ids in named:
            common = shared(first, second) // page
            assert first_ids[:common] == second_ids[:common]
            assert not set(first_ids[common:]) & set(second_ids[common:])


def test_the_output_of_a_call_is_found_again_in_the_next_prompt() -> None:
    namer = PageNamer(16)
    system, question, answer = Segment(1, 100), Segment(2, 30), Segment(3, 50)
    _, ids, more = namer.call((system, question), Segment(answer.key, answer.tokens - 1))
    _, later, _ = namer.call((system, question, answer, Segment(4, 20)), Segment(5, 9))
    assert len(more) == 3
    assert later[: len(ids) + len(more)] == ids + more


def test_a_shorter_and_a_longer_segment_of_one_key_agree_as_far_as_the_shorter_goes() -> None:
    namer = PageNamer(4)
    start, other = Segment(1, 8), Segment(9, 1)
    long = namer.call((start, Segment(2, 20), Segment(3, 4)), other)[1]
    namer.call((start, Segment(4, 8)), other)  # parts what came after `start`
    short = namer.call((start, Segment(2, 12), Segment(5, 8)), other)[1]
    assert short[:5] == long[:5]
    assert not set(short[5:]) & set(long)


def test_what_old_prompts_left_is_dropped_and_what_new_ones_use_is_kept() -> None:
    namer = PageNamer(4, max_ids=400)
    system = Segment(1, 40)
    first = namer.call((system, Segment(2, 40)), Segment(3, 8))[1]
    for n in range(100):
        namer.call((system, Segment(100 + n, 40)), Segment(3, 8))
    assert namer._kept <= 800
    again = namer.call((system, Segment(2, 40)), Segment(3, 8))[1]
    assert again[:10] == first[:10], "every prompt begins with it"
    assert not set(again[10:]) & set(first[10:]), "forgotten contents get new ids, never someone else's"


@pytest.mark.parametrize("page", [1, 64])
def test_the_same_prompts_get_the_same_ids(page: int) -> None:
    rng = random.Random(5)
    prompts = [tuple(Segment(rng.randrange(9), rng.randrange(1, 200)) for _ in range(rng.randint(1, 6))) for _ in range(50)]
    first, second = PageNamer(page), PageNamer(page)
    assert [first.call(p, Segment(99, 7)) for p in prompts] == [second.call(p, Segment(99, 7)) for p in prompts]
