"""Who calls: the channels that carry an identity are those of the plugin, and a malformed one costs nothing but its attribution."""

from collections.abc import Iterator
from typing import Any

import pytest

from pbkv.events.schema import REASONS, WORKFLOW_EVENTS, Namespace
from tests.server.test_identity import HOSTILE, hints, names
from tests.support.embedded import EmbeddedServer
from tests.support.server import Events


@pytest.fixture
def events(server: EmbeddedServer) -> Iterator[Events]:
    stream = Events(server.state()["events"])
    yield stream
    stream.close()


def rows_of(events: Events, kind: str, workflow: str) -> list[dict[str, Any]]:
    """Rows of one workflow: those of an earlier test's last call may still have been on their way."""
    known = names(events, Namespace.WORKFLOW)
    return [r for r in events.rows[kind] if known.get(r["workflow"]) == workflow]


def test_custom_params_on_chat(server: EmbeddedServer, events: Events) -> None:
    server.chat("hello there, engine " * 3, custom_params={"pbkv": {"workflow": "chat-1", "agent": "planner", "final": True}})
    events.drain()
    (call,) = rows_of(events, "call", "chat-1")
    assert names(events, Namespace.AGENT)[call["agent"]] == "planner"
    assert (call["attributed"], call["final"], call["step"]) == (1, 1, 0)
    rows = rows_of(events, "workflow", "chat-1")
    assert [(WORKFLOW_EVENTS[r["event"]], REASONS[r["reason"]]) for r in rows] == [("start", "none"), ("end", "final"), ("retire", "final")]


def test_kv_hints_on_generate(server: EmbeddedServer, events: Events) -> None:
    tokens = list(range(100, 160))
    for step, agent in enumerate(("a", "b")):
        server.generate(tokens, kv_hints=hints(workflow="hints-1", agent=agent, final=step == 1))
    events.drain()
    assert [r["step"] for r in rows_of(events, "call", "hints-1")] == [0, 1]


def test_custom_params_among_the_sampling_params(server: EmbeddedServer, events: Events) -> None:
    server.generate(list(range(64)), sampling={"custom_params": {"pbkv": {"workflow": "inner", "final": True}}})
    events.drain()
    assert len(rows_of(events, "call", "inner")) == 1


def test_session_as_workflow_until_it_is_closed(server: EmbeddedServer, events: Events) -> None:
    server.generate(list(range(64)), session_id="session-1")
    before = server.state()["workflows"]
    assert server.call("POST", "/close_session", {"session_id": "session-1"}).status_code == 200
    assert server.call("POST", "/close_session", {"session_id": "nobody"}).status_code == 200
    events.drain()
    assert server.state()["workflows"] == before - 1
    end = rows_of(events, "workflow", "session-1")[-1]
    assert (WORKFLOW_EVENTS[end["event"]], REASONS[end["reason"]]) == ("retire", "closed")
    assert end["retired_device_tokens"] > 0


def chat_with(server: EmbeddedServer, headers: dict[str, str], **body: Any) -> None:
    request = {"messages": [{"role": "user", "content": "hello there, engine " * 3}], "max_tokens": 2, **body}
    assert server.call("POST", "/v1/chat/completions", request, **headers).status_code == 200


def test_a_dynamo_session_until_its_final_request(server: EmbeddedServer, events: Events) -> None:
    for final in ("false", "true"):
        chat_with(server, {"X-Dynamo-Session-ID": "chain-1", "X-Dynamo-Parent-Session-ID": "run", "X-Dynamo-Session-Final": final})
    events.drain()
    assert [(r["step"], r["final"]) for r in rows_of(events, "call", "chain-1")] == [(0, 0), (1, 1)]
    assert [REASONS[r["reason"]] for r in rows_of(events, "workflow", "chain-1")] == ["none", "final", "final"]


@pytest.mark.parametrize("where", ["field", "extra_body", "generate"])
def test_a_program_until_it_is_released(server: EmbeddedServer, events: Events, where: str) -> None:
    name = f"program-{where}"
    if where == "generate":
        server.generate(list(range(64)), program_id=name)
    else:
        chat_with(server, {}, **({"program_id": name} if where == "field" else {"extra_body": {"program_id": name}}))
    for released in (True, False):
        answer = server.call("POST", "/programs/release", {"program_id": name})
        assert (answer.status_code, answer.json()) == (200, {"program_id": name, "released": released})
    events.drain()
    assert [REASONS[r["reason"]] for r in rows_of(events, "workflow", name)] == ["none", "closed", "closed"]


def test_the_strongest_of_several_identities_counts(server: EmbeddedServer, events: Events) -> None:
    body: dict[str, Any] = {
        "custom_params": {"pbkv": {"workflow": "by-params"}}, "kv_hints": hints(workflow="by-hint"), "session_id": "by-session",
        "program_id": "by-program",
    }
    headers = {"X-Dynamo-Session-ID": "by-header"}
    for strongest in ("custom_params", "kv_hints", "session_id", "X-Dynamo-Session-ID", "program_id"):
        chat_with(server, headers, **body)
        body.pop(strongest, None)
        headers.pop(strongest, None)
    events.drain()
    known = names(events, Namespace.WORKFLOW)
    seen = [known[r["workflow"]] for r in events.rows["call"] if known.get(r["workflow"], "").startswith("by-")]
    assert seen == ["by-params", "by-hint", "by-session", "by-header", "by-program"]
    for name in seen:
        server.call("POST", "/close_session", {"session_id": name})


def test_a_malformed_program_is_served_and_counted(server: EmbeddedServer) -> None:
    before = server.state()["counts"]
    chat_with(server, {}, program_id=["p"])
    assert server.call("POST", "/programs/release", {"program_id": ["p"]}).status_code == 400
    after = server.state()["counts"]
    assert (after["malformed"], after["unattributed"]) == (before["malformed"] + 1, before["unattributed"] + 1)


@pytest.mark.parametrize("payload", HOSTILE, ids=[repr(h)[:30] for h in HOSTILE])
def test_malformed_identity_is_served_and_counted(server: EmbeddedServer, payload: object) -> None:
    before = server.state()["counts"]
    answer = server.chat("hello there", n=2, custom_params={"pbkv": payload})
    assert answer["usage"]["completion_tokens"] == 2
    after = server.state()["counts"]
    assert after["malformed"] == before["malformed"] + 1
    assert after["unattributed"] == before["unattributed"] + 1


@pytest.mark.parametrize("shape", [None, 5, "text", ["a"], {}])
def test_parameters_of_other_shapes_carry_nobody(server: EmbeddedServer, shape: Any) -> None:
    before = server.state()["counts"]
    server.chat("hello there", n=2, custom_params=shape)
    after = server.state()["counts"]
    assert (after["malformed"], after["unattributed"]) == (before["malformed"], before["unattributed"] + 1)


def test_strange_names_are_served(server: EmbeddedServer, events: Events) -> None:
    strange = "流程 \x00 \N{PILE OF POO} ' ; drop table call"
    for final in (False, True):
        server.chat("y", n=2, custom_params={"pbkv": {"workflow": strange, "agent": strange, "final": final}})
    events.drain()
    assert [r["step"] for r in rows_of(events, "call", strange.replace("\0", "�"))] == [0, 1]
    assert server.alive()


def test_an_ended_id_may_come_back(server: EmbeddedServer, events: Events) -> None:
    for _ in range(2):
        server.chat("again", n=2, custom_params={"pbkv": {"workflow": "phoenix", "agent": "a", "final": True}})
    events.drain()
    assert [r["step"] for r in rows_of(events, "call", "phoenix")] == [0, 0]
    assert [WORKFLOW_EVENTS[r["event"]] for r in rows_of(events, "workflow", "phoenix")] == ["start", "end", "retire"] * 2


def test_no_text_of_a_prompt_travels(server: EmbeddedServer, events: Events) -> None:
    server.chat("the password is swordfish", n=30, custom_params={"pbkv": {"workflow": "private", "agent": "a", "final": True}})
    events.drain()
    assert events.rows["page"]
    assert "swordfish" not in repr(dict(events.rows))
