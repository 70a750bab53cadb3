"""The HTTP side without a server: identities are made harmless before they travel, and off loopback a token is required."""

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from hypothesis import given, settings

from pbkv.config import ServerConfig
from pbkv.errors import UsageError
from pbkv.identity import CallIdentity, identity_of
from pbkv.sglang.http import clean_identity, mount
from tests.core.test_identity_hostile import ANYTHING, PAYLOADS


def cleaned(custom: Any) -> Any:
    obj = SimpleNamespace(sampling_params={"temperature": 0, "custom_params": custom})
    clean_identity(obj)
    assert obj.sampling_params["temperature"] == 0
    return obj.sampling_params["custom_params"]


@settings(deadline=None, derandomize=True, max_examples=150)
@given(PAYLOADS)
def test_whatever_was_sent_travels_and_gets_the_same_verdict(payload: Any) -> None:
    sent = {"pbkv": payload, "mine": 1}
    custom = cleaned(sent)
    assert custom["mine"] == 1
    packed = msgspec.msgpack.encode(custom)
    assert len(packed) < 4000
    again = msgspec.msgpack.decode(packed)
    try:
        before: CallIdentity | None = identity_of(sent)
    except UsageError:
        before = None
        with pytest.raises(UsageError):
            identity_of(again)
    else:
        assert identity_of(again) == before


@settings(deadline=None, derandomize=True, max_examples=100)
@given(ANYTHING)
def test_other_parameters_are_left_alone(custom: Any) -> None:
    assert cleaned(custom) is custom


@pytest.mark.parametrize("obj", [SimpleNamespace(), SimpleNamespace(sampling_params=None), SimpleNamespace(sampling_params=[{}, {}])])
def test_requests_of_other_shapes_pass(obj: Any) -> None:
    before = dict(vars(obj))
    clean_identity(obj)
    assert vars(obj) == before


def test_a_good_identity_is_not_copied() -> None:
    custom = {"pbkv": {"workflow": "w", "agent": "a", "final": True}}
    assert cleaned(custom) is custom


def test_the_request_of_a_client_is_not_changed_in_place() -> None:
    sent = {"pbkv": {"workflow": 5}}
    custom = cleaned(sent)
    assert sent == {"pbkv": {"workflow": 5}}
    assert isinstance(custom["pbkv"], str)
    assert "workflow" in custom["pbkv"]
    json.dumps(custom)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_loopback_needs_no_token(host: str) -> None:
    app = FastAPI()
    mount(app, None, ServerConfig(), host)
    assert "/pbkv/knobs" in app.openapi()["paths"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org", ""])
def test_elsewhere_a_token_is_required(host: str, tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="token_file"):
        mount(FastAPI(), None, ServerConfig(), host)
    token = tmp_path / "token"
    token.write_text("secret")
    mount(FastAPI(), None, ServerConfig(token_file=str(token)), host)
    token.write_text("")
    with pytest.raises(UsageError, match="token_file"):
        mount(FastAPI(), None, ServerConfig(token_file=str(token)), host)
