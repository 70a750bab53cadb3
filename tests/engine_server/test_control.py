"""Knobs of the running engine: applied at a step, versioned, all or nothing, reverted when not confirmed, seen in the stream."""

import threading
from collections import Counter
from typing import Any

import pytest

from pbkv.control.client import ControlClient
from pbkv.errors import StaleVersion
from pbkv.events.schema import SOURCES, Namespace
from pbkv.eviction.catalog import POLICIES
from tests.server.test_identity import names
from tests.support.embedded import EmbeddedServer
from tests.support.server import Events, wait_for


@pytest.fixture
def client(server: EmbeddedServer) -> ControlClient:
    return ControlClient(server.url, actor="test")


def test_change_is_read_back_with_its_step_and_seen_in_the_stream(server: EmbeddedServer, client: ControlClient) -> None:
    events = Events(server.state()["events"])
    before = client.knobs()
    result = client.set({"gamma": 0.55, "k": 5}, reason="trial")
    after = client.knobs()
    assert after["version"] == result["version"] == before["version"] + 1
    assert after["step"] == result["step"] >= before["step"]
    assert (after["knobs"]["gamma"]["value"], after["knobs"]["k"]["value"]) == (0.55, 5)
    events.drain()
    text = names(events, Namespace.KNOB)
    seen = [(text[r["name"]], text[r["new"]], text[r["actor"]], text[r["reason"]]) for r in events.rows["knob"]]
    assert seen == [("gamma", "0.55", "test", "trial"), ("k", "5", "test", "trial")]
    assert [r["sched_step"] for r in events.rows["knob"]] == [result["step"]] * 2
    events.close()
    client.revert()
    assert client.knobs()["knobs"]["gamma"]["value"] == before["knobs"]["gamma"]["value"]


@pytest.mark.parametrize(("changes", "part"), [
    ({"gamma": 1.5}, "knob gamma = 1.5: expected a number from 0 to 1"), ({"gamma": "0.5"}, "knob gamma = '0.5'"),
    ({"nope": 1}, "no such knob"), ({}, "changes"), ({"gamma": 0.5, "k": 99}, "knob k = 99"),
])
def test_bad_change_is_422_and_changes_nothing(server: EmbeddedServer, changes: dict[str, Any], part: str) -> None:
    before = server.call("GET", "/pbkv/knobs").json()
    answer = server.call("PATCH", "/pbkv/knobs", {"if_version": before["version"], "changes": changes, "actor": "t"})
    assert answer.status_code == 422
    assert part in answer.json()["error"]
    assert server.call("GET", "/pbkv/knobs").json()["knobs"] == before["knobs"]


def test_stale_version_is_409(server: EmbeddedServer) -> None:
    version = server.call("GET", "/pbkv/knobs").json()["version"]
    answer = server.call("PATCH", "/pbkv/knobs", {"if_version": version + 1, "changes": {"k": 2}, "actor": "t"})
    assert answer.status_code == 409


def test_of_operators_at_once_one_wins(server: EmbeddedServer) -> None:
    version = ControlClient(server.url).knobs()["version"]
    outcomes: Counter[str] = Counter()

    def change(gamma: float) -> None:
        try:
            ControlClient(server.url, actor=f"op-{gamma}").set({"gamma": gamma}, if_version=version)
            outcomes["won"] += 1
        except StaleVersion:
            outcomes["stale"] += 1

    operators = [threading.Thread(target=change, args=(0.1 * n,)) for n in range(1, 7)]
    for operator in operators:
        operator.start()
    for operator in operators:
        operator.join()
    assert outcomes == {"won": 1, "stale": 5}


def test_unconfirmed_change_is_taken_back_by_the_engine(server: EmbeddedServer, client: ControlClient) -> None:
    events = Events(server.state()["events"])
    old = client.knobs()["knobs"]["prefetch_budget"]["value"]
    version = client.set({"prefetch_budget": 0}, expires_s=1)["version"]
    wait_for(lambda: client.knobs()["knobs"]["prefetch_budget"]["value"] == old)
    with pytest.raises(StaleVersion):
        client.confirm(version)
    assert [SOURCES[r["source"]] for r in events.drain().rows["knob"]] == ["manual", "expiry"]
    events.close()
    kept = client.set({"prefetch_budget": 4096}, expires_s=60)
    client.confirm(kept["version"])
    client.set({"prefetch_budget": old})


def test_idle_workflow_is_retired_by_the_clock(server: EmbeddedServer, client: ControlClient) -> None:
    server.chat("zzz", n=2, custom_params={"pbkv": {"workflow": "sleeper", "agent": "a"}})
    assert server.state()["workflows"] >= 1
    client.set({"retire_idle_s": 1})
    wait_for(lambda: server.state()["workflows"] == 0)
    client.set({"retire_idle_s": 600})


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_serves_a_full_cache(server: EmbeddedServer, client: ControlClient, policy: str) -> None:
    client.set({"policy": policy})
    for n in range(12):
        identity = {"workflow": f"{policy}-{n % 4}", "agent": "abc"[n % 3], "final": n > 7}
        assert server.chat(f"{n} is a number " * 60, n=20, custom_params={"pbkv": identity})["usage"]["completion_tokens"] == 20
    counts = server.state()["counts"]
    assert counts["evicted_tokens"] > 0
    client.set({"policy": "he"})


def test_state_names_the_engine_and_its_endpoints(server: EmbeddedServer) -> None:
    state = server.state()
    assert (state["engine"], state["server"], state["control_url"]) == ("embedded", "under-test", server.url)
    assert (state["events"], state["replay"]) == (server.ready["events"], server.ready["replay"])
    assert {"epoch", "step", "dropped_messages", "knob_version", "workflows", "leaves", "counts", "wall_ns", "pbkv"} <= state.keys()
