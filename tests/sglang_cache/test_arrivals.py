"""What a HTTP request says of its caller reaches the place where it is tokenized, however its body comes in and wherever the work goes."""

import asyncio
import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.identity import CallIdentity, identity_of
from pbkv.sglang.arrivals import Arrivals, adopt_identity
from tests.core.test_identity_hostile import ANYTHING, TEXT
from tests.support.loops import run_in_loop

DYNAMO = {"X-Dynamo-Session-ID": "chain", "X-Dynamo-Session-Final": "true"}


def arrive(
    body: bytes | Iterable[bytes] = b"", headers: dict[str, str] | None = None, *, method: str = "POST", kind: str = "http",
    in_a_task: bool = False, **fields: Any,
) -> Any:
    """`custom_params` of a request object tokenized inside an app that reads its body first."""
    chunks = [body] if isinstance(body, bytes) else list(body)
    obj = SimpleNamespace(**{"sampling_params": {"temperature": 0}, **fields})
    heard: list[dict[str, Any]] = []

    async def tokenize() -> None:
        adopt_identity(obj)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not heard or heard[-1].get("more_body"):
            heard.append(await receive())
        await (asyncio.get_running_loop().create_task(tokenize()) if in_a_task else tokenize())

    async def one_request() -> None:
        messages = iter([{"type": "http.request", "body": c, "more_body": n < len(chunks)} for n, c in enumerate(chunks, 1)])

        async def receive() -> dict[str, Any]:
            return next(messages)

        async def send(message: Any) -> None:
            raise AssertionError(message)

        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        await Arrivals(app)({"type": kind, "method": method, "headers": raw}, receive, send)

    run_in_loop(one_request)
    assert [m["body"] for m in heard] == chunks
    return obj.sampling_params.get("custom_params") if isinstance(obj.sampling_params, dict) else obj.sampling_params


@pytest.mark.parametrize("in_a_task", [False, True])
def test_dynamo_headers(in_a_task: bool) -> None:
    assert arrive(headers=DYNAMO, in_a_task=in_a_task) == {"pbkv": {"workflow": "chain", "final": True}}


@pytest.mark.parametrize("cut", [1, 7, 13, 10_000])
def test_a_program_is_read_from_a_body_in_pieces(cut: int) -> None:
    body = json.dumps({"messages": [], "program_id": "p-1"}).encode()
    pieces = [body[n : n + cut] for n in range(0, len(body), cut)]
    assert arrive(pieces) == {"pbkv": {"workflow": "p-1", "final": False}}


def test_two_requests_at_once_do_not_mix() -> None:
    async def request(name: str) -> str:
        obj = SimpleNamespace(sampling_params={})

        async def app(scope: Any, receive: Any, send: Any) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            adopt_identity(obj)

        async def nothing(*args: Any) -> Any: ...

        await Arrivals(app)({"type": "http", "method": "POST", "headers": [(b"x-dynamo-session-id", name.encode())]}, nothing, nothing)
        return obj.sampling_params["custom_params"]["pbkv"]["workflow"]

    async def many() -> None:
        assert await asyncio.gather(*(request(f"s{n}") for n in range(20))) == [f"s{n}" for n in range(20)]

    run_in_loop(many)


HINT = SimpleNamespace(actions=[SimpleNamespace(action_type="pbkv.step")])
OTHER_HINT = SimpleNamespace(actions=[SimpleNamespace(action_type="pin")])


@pytest.mark.parametrize("own", [
    {"session_id": "mine"}, {"kv_hints": HINT}, {"sampling_params": {"custom_params": {"pbkv": {"workflow": "w"}}}},
    {"sampling_params": {"custom_params": {"pbkv": None}}},
])
def test_a_request_with_an_identity_of_its_own_keeps_it(own: dict[str, Any]) -> None:
    expected = own.get("sampling_params", {}).get("custom_params")
    assert arrive(b'{"program_id": "p"}', DYNAMO, **own) == expected


@pytest.mark.parametrize("beside", [{"session_id": None}, {"session_id": ""}, {"kv_hints": None}, {"kv_hints": OTHER_HINT}])
def test_fields_that_name_nobody_are_no_identity(beside: dict[str, Any]) -> None:
    assert arrive(b'{"program_id": "p"}', **beside) == {"pbkv": {"workflow": "p", "final": False}}


def test_other_parameters_stay() -> None:
    assert arrive(headers=DYNAMO, sampling_params={"custom_params": {"mine": 1}})["mine"] == 1


@pytest.mark.parametrize("sampling", [None, [], [{}], "x", {"custom_params": "text"}, {"custom_params": [1]}])
def test_requests_of_other_shapes_pass(sampling: Any) -> None:
    before = sampling.get("custom_params") if isinstance(sampling, dict) else sampling
    assert arrive(headers=DYNAMO, sampling_params=sampling) == before


@pytest.mark.parametrize("body", [b'{"program_id": ', b'{"a": "program_id"}', b'["program_id"]', b'"program_id"', b'\xff"program_id"'])
def test_bodies_that_hold_no_program_pass(body: bytes) -> None:
    assert arrive(body) is None


def test_a_body_too_deep_to_decode_passes() -> None:
    assert arrive(b'{"program_id": ' + b"[" * 200_000) is None


def test_a_malformed_program_becomes_a_short_text_that_counts_as_malformed() -> None:
    custom = arrive(b'{"program_id": [[1]]}')
    assert custom["pbkv"].startswith("program_id: got list")
    with pytest.raises(UsageError):
        identity_of(custom)


def test_reads_and_websockets_are_not_looked_into() -> None:
    assert arrive(headers=DYNAMO, method="GET") is None
    assert arrive(headers=DYNAMO, kind="websocket") is None


def test_outside_a_request_nothing_happens() -> None:
    obj = SimpleNamespace(sampling_params={})
    adopt_identity(obj)
    assert obj.sampling_params == {}


@given(TEXT.map(lambda t: t.encode("latin-1", "replace").decode("latin-1")), st.dictionaries(st.just("program_id"), ANYTHING))
def test_whatever_arrives_can_travel(session: str, body: dict[str, Any]) -> None:
    try:
        data = json.dumps(body).encode()
    except (TypeError, ValueError):
        data = b"{}"
    custom = arrive(data, {"x-dynamo-session-id": session})
    if custom is None:
        return
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(custom))
    assert len(repr(again)) < 2000
    try:
        assert isinstance(identity_of(again), CallIdentity)
    except UsageError:
        assert isinstance(again["pbkv"], str)
