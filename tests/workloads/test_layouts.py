"""Prompts of the three layouts: what they contain, and what a later prompt shares with an earlier one."""

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.workloads.layouts import LAYOUTS, make_layout
from pbkv.workloads.tokens import Segment, content_key

OPENING, SYSTEM = Segment(1, 50), Segment(2, 80)
INSTRUCTIONS = {"a": Segment(3, 10), "b": Segment(4, 20), "c": Segment(5, 30)}
PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=12)


def play(layout: str, path: list[str]) -> list[tuple[Segment, ...]]:
    """The prompts of a workflow; news n has n+1 tokens and key 100+n, output n has 1000(n+1) tokens and key 200+n."""
    made = make_layout(layout, OPENING, SYSTEM)
    prompts = []
    for n, agent in enumerate(path):
        news, output = Segment(100 + n, n + 1), Segment(200 + n, 1000 * (n + 1))
        prompts.append(made.prompt(agent, INSTRUCTIONS[agent], news))
        made.replied(agent, news, output)
    return prompts


def shared(a: tuple[Segment, ...], b: tuple[Segment, ...]) -> int:
    """Segments of the longest common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def keys(prompt: tuple[Segment, ...]) -> list[int]:
    return [segment.key for segment in prompt]


def test_private_history_has_own_turns_and_what_others_said_since() -> None:
    prompts = play("private", ["a", "b", "b", "a"])
    assert keys(prompts[0]) == [3, 1, 100]
    assert keys(prompts[1]) == [4, 1, 200, 101]
    assert keys(prompts[2]) == [4, 1, 200, 101, 201, 102]
    assert keys(prompts[3]) == [3, 1, 100, 200, 201, 202, 103]


def test_shared_context_puts_the_agent_after_it() -> None:
    prompts = play("shared", ["a", "b", "a"])
    assert keys(prompts[0]) == [2, 1, 3, 100]
    assert keys(prompts[1]) == [2, 1, 100, 200, 4, 101]
    assert keys(prompts[2]) == [2, 1, 100, 200, 101, 201, 3, 102]


def test_group_chat_begins_with_the_agent() -> None:
    prompts = play("group", ["a", "b", "a"])
    assert keys(prompts[0]) == [3, 1, 100]
    assert keys(prompts[1]) == [4, 1, 100, 200, 101]
    assert keys(prompts[2]) == [3, 1, 100, 200, 101, 201, 102]


@given(PATHS)
def test_shared_and_group_prompts_hold_every_token_so_far(path: list[str]) -> None:
    for layout, extra in (("shared", SYSTEM.tokens), ("group", 0)):
        context = OPENING.tokens
        for n, (agent, prompt) in enumerate(zip(path, play(layout, path), strict=True)):
            assert sum(s.tokens for s in prompt) == extra + context + INSTRUCTIONS[agent].tokens + (n + 1)
            context += (n + 1) + 1000 * (n + 1)


@given(PATHS)
def test_private_prompts_hold_own_news_and_every_output_since_the_agents_first_turn(path: list[str]) -> None:
    for n, (agent, prompt) in enumerate(zip(path, play("private", path), strict=True)):
        mine = [i for i in range(n + 1) if path[i] == agent]
        assert sorted(keys(prompt)) == sorted([INSTRUCTIONS[agent].key, 1, *(100 + i for i in mine), *(200 + i for i in range(n))])


@given(PATHS, st.sampled_from(LAYOUTS))
def test_an_agents_prompt_extends_its_previous_one(path: list[str], layout: str) -> None:
    prompts = play(layout, path)
    for n, agent in enumerate(path):
        before = [i for i in range(n) if path[i] == agent]
        if before:
            # All but the agent's own instructions and news, which shared puts behind the context.
            kept = len(prompts[before[-1]]) - (2 if layout == "shared" else 0)
            assert shared(prompts[before[-1]], prompts[n]) >= kept


@given(PATHS)
def test_only_the_shared_layout_lets_agents_reuse_each_other(path: list[str]) -> None:
    for layout in LAYOUTS:
        prompts = play(layout, path)
        for n in range(1, len(path)):
            if path[n] != path[n - 1]:
                assert (shared(prompts[n - 1], prompts[n]) > 0) == (layout == "shared")


def test_the_lists_of_one_prompt_are_not_those_of_the_next() -> None:
    layout = make_layout("shared", OPENING, SYSTEM)
    first = layout.prompt("a", INSTRUCTIONS["a"], Segment(100, 1))
    copy = tuple(first)
    layout.replied("a", Segment(100, 1), Segment(200, 2))
    assert first == copy


def test_an_unknown_layout_is_named_with_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"layout 'ring'.*private, shared, group"):
        make_layout("ring", OPENING, SYSTEM)


def test_keys_are_the_same_in_every_process_and_differ_by_every_part() -> None:
    assert content_key("hover", "agent", "Analyzer") == 3761129466910685051
    made = {content_key("w", kind, n) for kind in ("news", "output") for n in range(1000)}
    assert len(made) == 2000
    assert content_key("a", "bc") != content_key("ab", "c") != content_key("abc")
    assert all(0 <= key < 1 << 63 for key in made)
