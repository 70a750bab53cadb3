"""Requests of any shape: answered or refused, never an error of the server's own, and the accounts stay right."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine_server.test_http import CHAT, metric
from tests.support.embedded import EmbeddedServer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4), max_leaves=12,
)
CHAT_FIELDS = (
    "messages", "max_tokens", "max_completion_tokens", "stream", "stream_options", "custom_params", "kv_hints", "session_id", "model", "n",
    "program_id", "extra_body",
)
GENERATE_FIELDS = ("text", "input_ids", "sampling_params", "custom_params", "kv_hints", "session_id", "program_id", "extra_body")


def post(server: EmbeddedServer, path: str, body: Any) -> int:
    return server.call("POST", path, body).status_code


@settings(max_examples=60)
@given(body=JSON)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/generate", "/close_session", "/programs/release"])
def test_any_json(server: EmbeddedServer, path: str, body: Any) -> None:
    assert post(server, path, body) in (200, 400)


@settings(max_examples=120)
@given(field=st.sampled_from(CHAT_FIELDS), value=JSON)
def test_a_chat_with_one_strange_field(server: EmbeddedServer, field: str, value: Any) -> None:
    assert post(server, "/v1/chat/completions", {**CHAT, "max_tokens": 2, field: value}) in (200, 400)


@settings(max_examples=80)
@given(field=st.sampled_from(GENERATE_FIELDS), value=JSON)
def test_a_generate_with_one_strange_field(server: EmbeddedServer, field: str, value: Any) -> None:
    assert post(server, "/generate", {"text": "hello", "sampling_params": {"max_new_tokens": 2}, field: value}) in (200, 400)


@settings(max_examples=60)
@given(data=st.binary(max_size=200))
def test_any_bytes(server: EmbeddedServer, data: bytes) -> None:
    assert server.raw("/v1/chat/completions", data) in (200, 400)


@pytest.mark.parametrize("value", ["[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000, "9" * 10_000, '"\\ud800"'])
def test_json_that_is_hard_to_hold(server: EmbeddedServer, value: str) -> None:
    for field in ("custom_params", "session_id", "messages"):
        body = json.dumps({**CHAT, "max_tokens": 2, field: "HERE"}).replace('"HERE"', value)
        assert server.raw("/v1/chat/completions", body.encode()) in (200, 400)
    assert server.alive()


def test_afterwards_everything_still_balances(server: EmbeddedServer) -> None:
    assert metric(server, "sglang:num_running_reqs") == metric(server, "sglang:num_queue_reqs") == 0
    assert metric(server, "sglang:kv_evictable_tokens") + metric(server, "sglang:kv_available_tokens") == 3072
    assert "Traceback" not in server.log()
