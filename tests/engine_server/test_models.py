"""Requests as clients send them: what is read, what is ignored, what is refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from pbkv.engine.server.models import DEFAULT_TOKENS, ChatRequest, GenerateRequest
from pbkv.workloads.base import Message

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_what_this_engine_has_no_use_for_is_ignored() -> None:
    request = ChatRequest.model_validate({**CHAT, "temperature": 0.7, "top_p": 1, "ignore_eos": True, "seed": 5, "tools": []})
    assert request.tokens == DEFAULT_TOKENS
    assert [m.plain() for m in request.messages] == [Message("user", "hi")]


@pytest.mark.parametrize(("body", "tokens"), [
    ({"max_tokens": 7}, 7), ({"max_completion_tokens": 9}, 9), ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
    ({"max_tokens": None}, DEFAULT_TOKENS),
])
def test_either_name_of_the_length_counts(body: dict[str, Any], tokens: int) -> None:
    assert ChatRequest.model_validate({**CHAT, **body}).tokens == tokens


@pytest.mark.parametrize(("sent", "read"), [
    ({"role": "developer", "content": "be kind"}, Message("system", "be kind")),
    ({"role": "tool", "content": "42", "tool_call_id": "x"}, Message("user", "42")),
    ({"role": "assistant", "content": None}, Message("assistant", "")),
    ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, Message("user", "ab")),
])
def test_messages_of_every_role(sent: dict[str, Any], read: Message) -> None:
    assert ChatRequest.model_validate({**CHAT, "messages": [sent]}).messages[0].plain() == read


@pytest.mark.parametrize("body", [
    {"messages": []}, {"messages": "hi"}, {"messages": [{"role": "robot", "content": "x"}]}, {"max_tokens": 0}, {"max_tokens": "many"},
    {"n": 2}, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, {"stream": "perhaps"},
    {"messages": [{"role": "user", "content": "x"}] * 5000}, {"session_id": 5}, {"kv_hints": {"actions": [{}] * 100}},
])
def test_what_cannot_be_meant_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ChatRequest.model_validate({**CHAT, **body})


def test_identity_of_any_shape_is_let_through_to_be_judged_later() -> None:
    for shape in (None, 5, "text", ["a"], {"pbkv": {"workflow": {"deep": []}}}):
        assert ChatRequest.model_validate({**CHAT, "custom_params": shape}).custom_params == shape


def test_generate_takes_text_or_ids() -> None:
    assert GenerateRequest.model_validate({"text": "hello"}).sampling_params.max_new_tokens == DEFAULT_TOKENS
    request = GenerateRequest.model_validate({"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 3, "temperature": 0}})
    assert (request.input_ids, request.sampling_params.max_new_tokens) == ([1, 2], 3)
