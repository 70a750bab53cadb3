"""Several data-parallel replicas behind one server: one answer of many, streams apart, and knob versions that meet again."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.config import ServerConfig
from pbkv.control.models import KnobPatch
from pbkv.errors import StaleVersion
from pbkv.knobs import KnobSet
from pbkv.sglang.control import handle
from pbkv.sglang.http import SchedulerBackend
from pbkv.sglang.replicas import one_history, one_state
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.test_guard import fault


def state(n: int, **more: Any) -> dict[str, Any]:
    return {
        "workflows": n, "leaves": 2 * n, "faults": 0, "fault": None, "dropped_messages": 1, "counts": {"calls": 10 * n}, "step": 5 - n,
        "events": f"e{n}", "replay": f"r{n}", "server": "s", **more,
    }


def test_one_replica_is_told_as_it_is() -> None:
    assert one_state([state(1)]) == state(1)


def test_several_replicas_add_up_and_name_their_streams() -> None:
    told = one_state([state(1), state(2, fault="broken", faults=1)])
    assert (told["workflows"], told["leaves"], told["counts"], told["faults"], told["step"]) == (3, 6, {"calls": 30}, 1, 4)
    assert told["fault"] == "replica 1: broken"
    assert told["streams"] == [["e1", "r1"], ["e2", "r2"]]


def change(version: int, **more: Any) -> dict[str, Any]:
    return {"version": version, "name": "k", "old": 1, "new": 2, "source": "manual", "reason": "", "step": 7, **more}


def test_history_tells_what_all_did_once_and_what_one_did_too() -> None:
    told = one_history([[change(2), change(4)], [change(2, step=9), change(3, source="guard", reason="replica fell"), change(4)]])
    assert [(c["version"], c["step"]) for c in told] == [(2, 7), (3, 7), (4, 7)]


@pytest.mark.parametrize(
    ("endpoint", "replica", "own"),
    [
        ("tcp://127.0.0.1:*", 3, "tcp://127.0.0.1:*"), ("tcp://127.0.0.1:5601", 0, "tcp://127.0.0.1:5601"),
        ("tcp://127.0.0.1:5601", 2, "tcp://127.0.0.1:5605"), ("tcp://*:5601", 1, "tcp://*:5603"), ("", 1, ""),
        ("tcp://[::1]:5601", 1, "tcp://[::1]:5603"), ("ipc:///tmp/x", 1, "ipc:///tmp/x"), ("tcp://h:0", 1, "tcp://h:0"), ("5", 1, "7"),
    ],
)
def test_each_replica_has_its_own_endpoints(endpoint: str, replica: int, own: str) -> None:
    config = ServerConfig(events=endpoint, replay=endpoint).of_replica(replica)
    assert (config.events, config.replay) == (own, own)


@given(st.integers(1, 8), st.integers(1, 8))
def test_no_two_replicas_share_an_endpoint(one: int, other: int) -> None:
    def pair(n: int) -> set[str]:
        config = ServerConfig(events="tcp://h:5601", replay="tcp://h:5602").of_replica(n)
        return {config.events, config.replay}

    assert len(pair(one)) == 2
    assert one == other or not pair(one) & pair(other)


# ---- versions --------------------------------------------------------------------------------------------------------------------


def backend_of(benches: list[Bench]) -> SchedulerBackend:
    """The HTTP side of these schedulers, without the messages between."""

    async def communicator(request: Any) -> list[Any]:
        return [handle(bench.runtime, request) for bench in reversed(benches)]  # they come as they come

    for number, bench in enumerate(benches):
        bench.runtime.replica = number
    return SchedulerBackend(SimpleNamespace(auto_create_handle_loop=lambda: None, pbkv_command_communicator=communicator))


def patch(backend: SchedulerBackend, version: int, **changes: Any) -> dict[str, Any]:
    return asyncio.run(backend.patch(KnobPatch(if_version=version, changes=changes, actor="test")))


@pytest.mark.parametrize("broken", [0, 1])
def test_after_a_fault_of_one_replica_all_can_be_changed_together_again(broken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault made a version that the other has not: without a common version no change would ever be accepted by both."""
    benches = [Bench(plugin={"policy": "he"}, page=4, size=128, host=None) for _ in range(2)]
    backend = backend_of(benches)
    fault(benches[broken], monkeypatch)
    with pytest.raises(StaleVersion):
        patch(backend, 1, gamma=0.5)
    version = asyncio.run(backend.tick(asyncio.run(backend.tick(0))))
    assert [b.runtime.knobs.version for b in benches] == [version] * 2
    assert patch(backend, version, policy="first_use", gamma=0.6)["version"] == version + 1
    assert [(b.runtime.knobs["policy"], b.runtime.knobs["gamma"], b.runtime.guard.fault) for b in benches] == [("first_use", 0.6, "")] * 2
    assert json.dumps(asyncio.run(backend.history()))
    assert asyncio.run(backend.state())["faults"] == 1


def test_the_fault_of_a_replica_is_told_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    benches = [Bench(plugin={"policy": "he"}, page=4, size=128, host=None) for _ in range(3)]
    fault(benches[1], monkeypatch)
    assert asyncio.run(backend_of(benches).state())["fault"].startswith("replica 1: ")


def test_nobody_falls_behind_its_own_version() -> None:
    knobs = KnobSet(version=7)
    knobs.catch_up(3)
    assert knobs.version == 7
    knobs.catch_up(9)
    assert knobs.version == 9
