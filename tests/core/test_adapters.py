"""Identities of other systems: read as those systems read them, bounded like our own, and weaker than our own."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.adapters import adapted_identity, program_in, program_workflow
from pbkv.errors import UsageError
from pbkv.identity import MAX_NAME, CallIdentity
from tests.core.test_identity_hostile import ANYTHING, TEXT, check


@pytest.mark.parametrize(("headers", "expected"), [
    ({}, None),
    ({"x-dynamo-session-id": ""}, None),
    ({"x-dynamo-session-id": " \t"}, None),
    ({"x-dynamo-session-id": "s\u00e9ance"}, None),
    ({"x-dynamo-session-final": "true"}, None),
    ({"x-dynamo-parent-session-id": "run"}, None),
    ({"x-dynamo-session-id": " run-1:researcher "}, CallIdentity("run-1:researcher")),
    ({"x-dynamo-session-id": "child", "x-dynamo-parent-session-id": "run"}, CallIdentity("child")),
    ({"x-dynamo-session-id": "s", "x-dynamo-session-final": "true"}, CallIdentity("s", final=True)),
    ({"x-dynamo-session-id": "s", "x-dynamo-session-final": " TRUE "}, CallIdentity("s", final=True)),
    ({"x-dynamo-session-id": "s", "x-dynamo-session-final": "1"}, CallIdentity("s", final=True)),
    ({"x-dynamo-session-id": "s", "x-dynamo-session-final": "false"}, CallIdentity("s")),
    ({"x-dynamo-session-id": "s", "x-dynamo-session-final": "perhaps"}, CallIdentity("s")),
    ({"x-dynamo-session-id": "s" * 60_000}, CallIdentity("s" * MAX_NAME)),
])
def test_dynamo_headers(headers: dict[str, str], expected: CallIdentity | None) -> None:
    assert adapted_identity(headers) == expected


def test_headers_come_before_a_program() -> None:
    assert adapted_identity({"x-dynamo-session-id": "s"}, "p") == CallIdentity("s")
    assert adapted_identity({"x-dynamo-session-id": "s"}, ["broken"]) == CallIdentity("s")
    assert adapted_identity({"x-dynamo-session-final": "true"}, "p") == CallIdentity("p")


@pytest.mark.parametrize(("program", "name"), [("run 7", "run 7"), (7, "7"), (-1, "-1"), ("p" * 9999, "p" * MAX_NAME), ("\ud800", "?")])
def test_a_program_is_a_workflow(program: object, name: str) -> None:
    assert adapted_identity({}, program) == CallIdentity(name)
    assert program_workflow(program) == name


def repr_of(program: object) -> str:
    return type(program).__name__


@pytest.mark.parametrize("program", ["", True, 1.5, [], {}, ["p"], {"id": "p"}, 10**5000, 1 << 63], ids=repr_of)
def test_a_program_of_the_wrong_kind_is_said_so(program: object) -> None:
    with pytest.raises(UsageError, match="expected a string or a whole number"):
        adapted_identity({}, program)


@pytest.mark.parametrize(("body", "found"), [
    ({"program_id": "a"}, "a"), ({"extra_body": {"program_id": "b"}}, "b"), ({"program_id": "a", "extra_body": {"program_id": "b"}}, "a"),
    ({"program_id": None, "extra_body": {"program_id": "b"}}, "b"), ({"extra_body": "b"}, None), ({}, None), ([], None), (None, None),
    ("program_id", None),
])
def test_where_a_program_is_looked_for(body: object, found: object) -> None:
    assert program_in(body) == found


@given(st.dictionaries(st.sampled_from(["x-dynamo-session-id", "x-dynamo-session-final", "other"]), TEXT), ANYTHING)
def test_whatever_is_sent(headers: dict[str, str], body: Any) -> None:
    check(lambda: adapted_identity(headers, program_in(body)))
    check(lambda: adapted_identity(headers, body))
