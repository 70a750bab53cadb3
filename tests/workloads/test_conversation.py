"""Layout and cutting of prompts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.workloads.base import Message
from pbkv.workloads.conversation import Conversation, clip, size


def conversation(limit: int = 1000) -> Conversation:
    return Conversation(lambda name: f"You are {name}.", limit)


def test_prompt_is_system_own_history_then_what_others_said() -> None:
    talk = conversation()
    talk.say("user", "question")
    assert talk.prompt("A") == (Message("system", "You are A."), Message("user", "user: question"))
    talk.replied("A", "answer of A")
    assert [m.content for m in talk.prompt("B")] == ["You are B.", "user: question\nA: answer of A"]
    talk.replied("B", "answer of B")
    assert [(m.role, m.content) for m in talk.prompt("A")] == [
        ("system", "You are A."), ("user", "user: question"), ("assistant", "answer of A"), ("user", "B: answer of B"),
    ]


def test_an_agents_prompt_extends_its_previous_one() -> None:
    talk = conversation(10_000)
    talk.say("user", "start")
    before = talk.prompt("A")
    for n in range(5):
        talk.replied("A", f"reply {n}")
        talk.say("tool", f"result {n}")
        after = talk.prompt("A")
        assert after[: len(before)] == before
        before = after


def test_agent_that_nobody_spoke_to_still_gets_a_user_message() -> None:
    talk = conversation()
    first = talk.prompt("A")
    assert first[-1] == Message("user", "Go on.")
    talk.replied("A", "x")
    assert talk.prompt("A")[-1] == Message("user", "Go on.")


def test_overflow_drops_the_oldest_half_and_keeps_system_and_newest() -> None:
    talk = conversation(1000)
    lengths: list[int] = []
    for n in range(40):
        talk.say("user", f"message {n} " + "x" * 60)
        prompt = talk.prompt("A")
        talk.replied("A", "y" * 30)
        assert prompt[0].content == "You are A."
        assert prompt[-1].content.startswith(f"user: message {n} ")
        lengths.append(len(prompt))
    shrinks = sum(b < a for a, b in itertools.pairwise(lengths))
    assert 2 <= shrinks < 20, "cut by halves, not at every call"


def test_roles_alternate_after_cuts() -> None:
    talk = conversation(600)
    for n in range(30):
        talk.say("user", "z" * (n * 7 % 90))
        roles = [m.role for m in talk.prompt("A")]
        talk.replied("A", "r" * 20)
        assert roles == ["system", *["user", "assistant"] * ((len(roles) - 2) // 2), "user"]


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.text(max_size=400)), max_size=30), st.integers(200, 2000))
def test_no_prompt_exceeds_the_limit(turns: list[tuple[str, str]], limit: int) -> None:
    talk = conversation(limit)
    for agent, text in turns:
        talk.say("user", text)
        prompt = talk.prompt(agent)
        assert size(prompt) <= limit
        assert prompt[-1].content
        talk.replied(agent, clip(text, limit // 4))


@given(st.text(max_size=300), st.integers(0, 200))
def test_clip_keeps_the_end_within_the_limit(text: str, limit: int) -> None:
    short = clip(text, limit)
    assert len(short.encode()) <= limit
    if len(text.encode()) <= limit:
        assert short == text
    elif limit > 20:
        assert short.startswith("[...]")
        assert text.endswith(short.removeprefix("[...]"))


@pytest.mark.parametrize("text", ["\ud800", "a\ud800b"])
def test_clip_survives_lone_surrogates(text: str) -> None:
    clip(text, 10).encode()
