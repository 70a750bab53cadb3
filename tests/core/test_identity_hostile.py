"""Whatever a client sends as identity: an identity, nobody, or one sentence. Never another error, never a huge message."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.identity import HINT_ACTION, MAX_NAME, CallIdentity, identity_of, parse_payload, session_workflow

TEXT = st.text(st.characters(exclude_categories=()), max_size=40)  # lone surrogates and NUL included
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT, st.binary(max_size=8))
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.one_of(TEXT, st.integers()), inner, max_size=3)),
    max_leaves=8,
)
KEYS = st.one_of(st.sampled_from(["workflow", "agent", "final"]), TEXT, st.integers(), st.none(), st.binary(max_size=3))
PAYLOADS = st.one_of(
    ANYTHING, st.dictionaries(KEYS, ANYTHING, max_size=4), st.fixed_dictionaries({"workflow": TEXT}, optional={"agent": ANYTHING})
)
CUSTOM = st.one_of(ANYTHING, st.fixed_dictionaries({"pbkv": PAYLOADS}))
HINTS = st.lists(st.tuples(st.sampled_from([HINT_ACTION, "x"]), PAYLOADS))


def check(run: Any) -> None:
    sentence = ""
    try:
        found = run()
    except UsageError as error:
        found, sentence = None, str(error)
    assert len(sentence) < 400
    sentence.encode()  # it goes into logs and over the wire
    assert "\n" not in sentence
    assert found is None or isinstance(found, CallIdentity)
    if found is not None:
        assert 0 < len(found.workflow) <= MAX_NAME
        assert len(found.agent) <= MAX_NAME
        assert type(found.final) is bool
        (found.workflow + found.agent).encode()


@settings(deadline=None, derandomize=True, max_examples=150)
@given(PAYLOADS)
def test_any_payload(payload: object) -> None:
    check(lambda: parse_payload(payload))


@settings(deadline=None, derandomize=True, max_examples=100)
@given(CUSTOM, HINTS, st.one_of(st.none(), TEXT))
def test_any_request(custom: object, hints: list[tuple[str, object]], session: str | None) -> None:
    check(lambda: identity_of(custom, hints, session))


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("payload", "names"),
    [
        (None, "NoneType"),
        ([], "list"),
        ("w", "str"),
        ({}, "workflow"),
        ({"workflow": ""}, "0 characters"),
        ({"workflow": 7}, "int"),
        ({"workflow": "w" * (MAX_NAME + 1)}, "257 characters"),
        ({"workflow": "w", "agent": None}, "agent"),
        ({"workflow": "w", "agent": "a" * 1000}, "1000 characters"),
        ({"workflow": "w", "final": 1}, "final"),
        ({"workflow": "w", "final": "true"}, "final"),
        ({"workflow": "w", "final": 10**5000}, "final"),
        ({"workflow": "w", "final": nested(5000)}, "final"),
        ({"workflow": "w", "step": 1}, "step"),
        ({"workflow": "w", "x" * 9999: 1}, "no field"),
        ({"workflow": "w", 10**5000: 1}, "no field"),
        ({"workflow": "\ud800"}, "workflow"),
        ({"workflow": "w", "agent": "\udfff"}, "agent"),
        ({"workflow": "w", "\ud800": 1}, "no field"),
    ],
)
def test_a_malformed_identity_is_named(payload: object, names: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_payload(payload)
    assert names in str(caught.value)
    assert len(str(caught.value)) < 400
    str(caught.value).encode()


def test_a_good_identity_in_each_place() -> None:
    payload = {"workflow": "w", "agent": "a", "final": True}
    good = CallIdentity("w", "a", True)
    assert parse_payload(payload) == good
    assert identity_of({"pbkv": payload}) == good
    assert identity_of({"other": 1}, [("else", 1), (HINT_ACTION, payload)]) == good
    assert identity_of(None, (), "session") == CallIdentity("session")
    assert identity_of(None, (), None) is None
    assert identity_of(None, (), "") is None


def test_the_first_source_wins() -> None:
    hints = [(HINT_ACTION, {"workflow": "hint"}), (HINT_ACTION, {"workflow": "second"})]
    assert identity_of({"pbkv": {"workflow": "custom"}}, hints, "session") == CallIdentity("custom")
    assert identity_of({}, hints, "session") == CallIdentity("hint")


def test_a_malformed_source_is_not_replaced_by_a_weaker_one() -> None:
    for custom, hints in (({"pbkv": None}, []), ({}, [(HINT_ACTION, None)])):
        with pytest.raises(UsageError):
            identity_of(custom, hints, "session")


def test_names_of_the_longest_allowed_length_are_kept() -> None:
    name = "ü" * MAX_NAME
    assert parse_payload({"workflow": name, "agent": name}) == CallIdentity(name, name)


def test_a_long_session_is_cut() -> None:
    assert identity_of(None, (), "s" * 10_000) == CallIdentity("s" * MAX_NAME)
    assert session_workflow("s" * 10_000) == "s" * MAX_NAME
    assert identity_of(None, (), "\ud800") == CallIdentity(session_workflow("\ud800"))
