"""Text as tokens: prompts that extend each other, replies that repeat, page ids that tell contents apart and nothing else."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.engine.server.text import PageIds, chat_bytes, reply_to
from pbkv.workloads.base import Message
from pbkv.workloads.catalog import WORKLOADS, make_workload
from pbkv.workloads.conversation import TEMPLATE_BYTES, size

CONTENT = st.text(max_size=60)
MESSAGES = st.lists(st.builds(Message, st.sampled_from(("system", "user", "assistant")), CONTENT), min_size=1, max_size=6)


@given(MESSAGES, st.integers(1, 200), CONTENT)
def test_a_reply_sent_back_extends_the_prompt_it_answered(messages: list[Message], tokens: int, more: str) -> None:
    prompt = chat_bytes(messages)
    reply = reply_to(prompt, tokens)
    again = chat_bytes([*messages, Message("assistant", reply.decode()), Message("user", more)])
    assert again.startswith(prompt + reply)


@given(MESSAGES)
def test_the_template_stays_within_what_workloads_reckon_with(messages: list[Message]) -> None:
    assert len(chat_bytes(messages)) <= size(messages)
    assert len(chat_bytes([Message("assistant", "")])) <= 2 * TEMPLATE_BYTES


@given(st.binary(max_size=100), st.integers(1, 3000))
def test_a_reply_is_exactly_as_long_as_asked_and_repeats(prompt: bytes, tokens: int) -> None:
    reply = reply_to(prompt, tokens)
    assert len(reply) == tokens
    assert reply.isascii()
    assert reply == reply_to(prompt, tokens)


def test_different_prompts_get_different_replies() -> None:
    replies = [reply_to(f"claim {n}".encode(), 60) for n in range(50)]
    assert len(set(replies)) == 50


def test_half_a_surrogate_pair_is_a_prompt_like_any_other() -> None:
    assert b"?" in chat_bytes([Message("user", "\ud800")])


@given(st.binary(max_size=300), st.sampled_from((1, 16, 64)))
def test_only_full_pages_have_ids_and_equal_bytes_equal_ids(text: bytes, page: int) -> None:
    pages = PageIds(page)
    ids = pages.of(text)
    assert len(ids) == len(text) // page
    contents = [text[n * page : (n + 1) * page] for n in range(len(ids))]
    for (a, one), (b, other) in itertools.product(zip(contents, ids, strict=True), repeat=2):
        assert (a == b) == (one == other)
    assert all(0 <= n < 1 << 63 for n in ids)


@given(st.binary(min_size=64, max_size=200), st.binary(max_size=100))
def test_ids_of_a_prefix_are_a_prefix_of_the_ids(text: bytes, more: bytes) -> None:
    pages = PageIds(16)
    short = pages.of(text)
    assert pages.of(text + more)[: len(short)] == short


def test_ids_of_another_process_tell_nothing() -> None:
    text = bytes(range(64))
    assert not set(PageIds(16).of(text)) & set(PageIds(16).of(text))


@pytest.mark.parametrize("name", WORKLOADS)
def test_consecutive_prompts_of_an_agent_share_their_beginning(name: str) -> None:
    play = next(make_workload(name, limit=100_000).plays())
    last: dict[str, bytes] = {}
    call = next(play.script)
    try:
        while True:
            prompt = chat_bytes(call.messages)
            reply = reply_to(prompt, call.max_tokens)
            assert prompt.startswith(last.get(call.agent, b""))
            last[call.agent] = prompt + reply
            call = play.script.send(reply.decode())
    except StopIteration:
        assert last
