"""Who calls: every channel that carries an identity, and what a malformed one costs (nothing but its attribution)."""

from collections.abc import Iterator
from typing import Any

import pytest

from pbkv.events.schema import REASONS, WORKFLOW_EVENTS, Namespace
from tests.support.server import Events, Server

pytestmark = pytest.mark.server


@pytest.fixture
def events(plugin: Server) -> Iterator[Events]:
    stream = Events(plugin.state()["events"])
    yield stream
    stream.close()


def names(events: Events, namespace: Namespace) -> dict[int, str]:
    return {r["id"]: r["text"].rstrip(b"\0").decode() for r in events.rows["name"] if r["namespace"] == namespace}


def hints(**payload: Any) -> dict[str, Any]:
    action = {"action_id": "1", "action_type": "pbkv.step", "action_version": "1", "payload": payload}
    return {"protocol_version": "1", "message_id": "m", "actions": [action]}


def test_custom_params_on_chat(plugin: Server, events: Events) -> None:
    plugin.chat("hello", custom_params={"pbkv": {"workflow": "chat-1", "agent": "planner", "final": True}})
    events.drain()
    call = events.rows["call"][-1]
    assert names(events, Namespace.WORKFLOW)[call["workflow"]] == "chat-1"
    assert names(events, Namespace.AGENT)[call["agent"]] == "planner"
    assert (call["attributed"], call["final"], call["step"]) == (1, 1, 0)
    assert [WORKFLOW_EVENTS[r["event"]] for r in events.rows["workflow"]] == ["start", "end", "retire"]
    assert REASONS[events.rows["workflow"][-1]["reason"]] == "final"


def test_kv_hints_on_generate(plugin: Server, events: Events) -> None:
    tokens = list(range(100, 160))
    for step, agent in enumerate(("a", "b")):
        plugin.generate(tokens, kv_hints=hints(workflow="hints-1", agent=agent, final=step == 1))
    events.drain()
    assert [r["step"] for r in events.rows["call"]] == [0, 1]
    assert {names(events, Namespace.WORKFLOW)[r["workflow"]] for r in events.rows["call"]} == {"hints-1"}


def test_session_as_workflow_until_it_is_closed(plugin: Server, events: Events) -> None:
    plugin.generate(list(range(64)), session_id="session-1")
    before = plugin.state()["workflows"]
    assert plugin.call("POST", "/close_session", {"session_id": "session-1"}).status_code == 200
    events.drain()
    assert plugin.state()["workflows"] == before - 1
    end = events.rows["workflow"][-1]
    assert (WORKFLOW_EVENTS[end["event"]], REASONS[end["reason"]]) == ("retire", "closed")
    assert end["retired_device_tokens"] > 0


HOSTILE = [
    "text", 5, None, [], ["a"], {}, {"agent": "a"}, {"workflow": {"deep": 1}}, {"workflow": ["a"]}, {"workflow": ""},
    {"workflow": "w" * 1000}, {"workflow": "w", "final": "yes"}, {"workflow": "w", "role": "x"}, {"workflow": 7, "agent": "a"},
]


@pytest.mark.parametrize("payload", HOSTILE, ids=[repr(h)[:30] for h in HOSTILE])
def test_malformed_identity_is_served_and_counted(plugin: Server, payload: object) -> None:
    before = plugin.state()["counts"]
    answer = plugin.chat("hello there", n=2, custom_params={"pbkv": payload})
    assert answer["usage"]["completion_tokens"] == 2
    after = plugin.state()["counts"]
    assert after["malformed"] == before["malformed"] + 1
    assert after["unattributed"] == before["unattributed"] + 1


def test_huge_and_strange_names_are_served(plugin: Server) -> None:
    answer = plugin.chat("x", n=2, custom_params={"pbkv": {"workflow": "w" * 10_000_000, "agent": "a"}})
    assert answer["usage"]["completion_tokens"] == 2
    strange = "流程 \x00 \N{PILE OF POO} ' ; drop table call"
    for final in (False, True):
        plugin.chat("y", n=2, custom_params={"pbkv": {"workflow": strange, "agent": strange, "final": final}})
    assert plugin.alive()


def test_an_ended_id_may_come_back(plugin: Server, events: Events) -> None:
    for _ in range(2):
        plugin.chat("again", n=2, custom_params={"pbkv": {"workflow": "phoenix", "agent": "a", "final": True}})
    events.drain()
    assert [r["step"] for r in events.rows["call"]] == [0, 0]
    assert [WORKFLOW_EVENTS[r["event"]] for r in events.rows["workflow"]] == ["start", "end", "retire"] * 2
