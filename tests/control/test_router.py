"""The control interface over a real socket: statuses, sentences, tokens, limits."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from pbkv.events.schema import DIGEST
from tests.support.control import ControlServer


@pytest.fixture(scope="module")
def server() -> Iterator[ControlServer]:
    with ControlServer() as server:
        yield server


def patch(server: ControlServer, body: object, **kwargs: Any) -> requests.Response:
    return requests.patch(f"{server.url}/pbkv/knobs", json=body, timeout=10, **kwargs)


def version(server: ControlServer) -> int:
    return requests.get(f"{server.url}/pbkv/knobs", timeout=10).json()["version"]


def change(server: ControlServer, **fields: Any) -> dict[str, Any]:
    return {"if_version": version(server), "changes": {"gamma": 0.7}, "actor": "t", **fields}


def test_knobs_say_value_default_bounds_unit_and_meaning(server: ControlServer) -> None:
    answer = requests.get(f"{server.url}/pbkv/knobs", timeout=10).json()
    assert {"version", "step", "knobs"} == set(answer)
    assert set(answer["knobs"]["k"]) == {"value", "default", "min", "max", "choices", "integer", "unit", "meaning"}


def test_a_change_answers_with_the_step_it_took_effect(server: ControlServer) -> None:
    before = version(server)
    answer = patch(server, change(server, reason="try"))
    assert answer.status_code == 200
    assert (answer.json()["version"], answer.json()["step"]) == (before + 1, server.backend.set.step)
    history = requests.get(f"{server.url}/pbkv/knobs/history", timeout=10).json()
    assert (history[-1]["name"], history[-1]["new"], history[-1]["actor"], history[-1]["reason"]) == ("gamma", 0.7, "t", "try")


@pytest.mark.parametrize(("fields", "status", "words"), [
    ({"changes": {"gamma": 1.5}}, 422, "knob gamma = 1.5: expected a number from 0 to 1"),
    ({"changes": {"k": 0}}, 422, "knob k = 0: expected a whole number from 1 to 8"),
    ({"changes": {"nope": 1}}, 422, "no such knob"),
    ({"changes": {}}, 422, "changes"),
    ({"changes": {"gamma": "0.5"}}, 422, "knob gamma = '0.5'"),
    ({"changes": {"gamma": True}}, 422, "changes"),
    ({"if_version": 999_999}, 409, "the knobs are at version"),
    ({"if_version": "1"}, 422, "if_version"),
    ({"if_version": -1}, 422, "if_version"),
    ({"actor": ""}, 422, "actor"),
    ({"surprise": 1}, 422, "surprise"),
    ({"expires_s": 0}, 422, "expires_s"),
    ({"source": "expiry"}, 422, "source"),
    ({"reason": "x" * 101}, 422, "reason"),
])
def test_a_refused_change_names_the_field_and_changes_nothing(
    server: ControlServer, fields: dict[str, Any], status: int, words: str,
) -> None:
    body = change(server, **fields)
    before = requests.get(f"{server.url}/pbkv/knobs", timeout=10).json()
    answer = patch(server, body)
    assert answer.status_code == status
    assert words in answer.json()["error"] and "\n" not in answer.json()["error"]
    after = requests.get(f"{server.url}/pbkv/knobs", timeout=10).json()
    assert after == before


def test_all_values_are_checked_before_any_is_applied(server: ControlServer) -> None:
    before = server.backend.set["k"]
    assert patch(server, change(server, changes={"k": 5, "gamma": 2})).status_code == 422
    assert server.backend.set["k"] == before


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"if_version": 1e999}'])
def test_a_body_that_is_no_change_is_refused(server: ControlServer, body: bytes) -> None:
    answer = requests.patch(f"{server.url}/pbkv/knobs", data=body, timeout=10)
    assert answer.status_code == 422 and answer.json()["error"]


def test_a_huge_body_is_refused_whether_or_not_it_says_its_length(server: ControlServer) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 4096

    for data in (b" " * (65 << 10), chunks()):
        answer = requests.patch(f"{server.url}/pbkv/knobs", data=data, timeout=10)
        assert answer.status_code == 413 and "at most" in answer.json()["error"]


def test_an_unconfirmed_change_is_taken_back_and_a_confirmed_one_stays() -> None:
    with ControlServer() as server:
        now = 0.0
        server.backend.clock = lambda: now
        patch(server, change(server, expires_s=10))
        requests.post(f"{server.url}/pbkv/knobs/confirm", json={"version": 2}, timeout=10)
        now = 11.0
        assert version(server) == 2
        patch(server, change(server, changes={"k": 5}, expires_s=10))
        now = 22.0
        knobs = requests.get(f"{server.url}/pbkv/knobs", timeout=10).json()
        assert (knobs["version"], knobs["knobs"]["k"]["value"], knobs["knobs"]["gamma"]["value"]) == (4, 3, 0.7)
        assert server.backend.log[-1]["source"] == "expiry"


def test_confirming_what_waits_for_nothing_is_stale(server: ControlServer) -> None:
    answer = requests.post(f"{server.url}/pbkv/knobs/confirm", json={"version": 12345}, timeout=10)
    assert answer.status_code == 409


def test_schema_and_state(server: ControlServer) -> None:
    assert requests.get(f"{server.url}/pbkv/schema", timeout=10).json()["digest"] == DIGEST.hex()
    assert requests.get(f"{server.url}/pbkv/state", timeout=10).json()["server"] == "test"


@pytest.mark.parametrize(("method", "path"), [
    ("GET", "knobs"), ("PATCH", "knobs"), ("POST", "knobs/confirm"), ("GET", "knobs/history"), ("GET", "state"), ("GET", "schema"),
])
def test_with_a_token_every_route_wants_it(method: str, path: str) -> None:
    with ControlServer(token="s3cret") as server:
        url = f"{server.url}/pbkv/{path}"
        assert requests.request(method, url, json={}, timeout=10).status_code == 401
        for wrong in ("Bearer nope", "s3cret", "Bearer s3cret ", "Bearer \u00fc"):
            answer = requests.request(method, url, json={}, timeout=10, headers={"Authorization": wrong.encode()})
            assert answer.status_code == 403 or wrong.endswith(" ")
        right = requests.request(method, url, json={}, timeout=10, headers={"Authorization": "Bearer s3cret"})
        assert right.status_code not in (401, 403)
