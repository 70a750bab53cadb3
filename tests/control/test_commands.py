"""Commands on real knobs, state and queue, without an engine: applied at a step, refused with a status, kept in a bounded history."""

import json
from typing import Any

import pytest

from pbkv.control.commands import MAX_HISTORY, Commands
from pbkv.errors import StaleVersion, UsageError
from pbkv.events.wire import decode
from pbkv.events.writer import EventWriter
from pbkv.identity import CallIdentity
from pbkv.knobs import KNOBS, KnobSet
from pbkv.manager import CacheManager
from pbkv.predictor.markov import OnlineMarkov
from pbkv.record import NodeRecord
from pbkv.telemetry import Telemetry


class Kept:
    """A sink that keeps every message."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def offer(self, seq: int, payload: bytes) -> bool:
        self.payloads.append(payload)
        return True


class NoTree:
    """A tree without nodes."""

    def tier_of(self, record: NodeRecord) -> str:
        return "none"

    def parent_of(self, record: NodeRecord) -> int:
        return 0

    def tokens_of(self, record: NodeRecord) -> tuple[int, int]:
        return 0, 0

    def is_device_leaf(self, record: NodeRecord) -> bool:
        return False


class Cache(CacheManager):
    """A cache that has come to step 7; `sink` is its event stream."""

    def __init__(self) -> None:
        super().__init__(NoTree(), KnobSet(), OnlineMarkov(), bytes_per_token=1)
        self.step = 7
        self.sink = Kept()
        writer = EventWriter("test", self.sink)
        self.observe_with(Telemetry(writer, self.tree.tier_of, self.tree.parent_of, self.state.agent_names))


@pytest.fixture
def cache() -> Cache:
    return Cache()


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def commands(cache: Cache, now: list[float]) -> Commands:
    return Commands(cache, lambda: {"engine": "test", "server": "one"}, lambda: now[0])


def patch(commands: Commands, version: int, changes: dict[str, Any], **more: Any) -> Any:
    return commands.run("patch", patch={"if_version": version, "changes": changes, "actor": "me", **more}, wall_ns=5)


def test_a_change_names_its_step_in_the_answer_the_history_and_the_log(commands: Commands, cache: Cache) -> None:
    answer = patch(commands, 1, {"gamma": 0.5, "k": 2}, reason="why")
    assert answer == {
        "version": 2, "step": 7, "changes": [{"name": "gamma", "old": 0.8, "new": 0.5}, {"name": "k", "old": 3, "new": 2}],
    }
    assert (cache.knobs["gamma"], cache.knobs["k"]) == (0.5, 2)
    history = commands.run("history")
    assert [(h["name"], h["step"], h["wall_ns"], h["actor"], h["reason"]) for h in history] == [
        ("gamma", 7, 5, "me", "why"), ("k", 7, 5, "me", "why"),
    ]
    (message,) = [decode(p) for p in cache.sink.payloads]
    assert (message.header.step, len(message.tables["knob"])) == (7, 2)


def test_without_telemetry_the_same_change_is_made(commands: Commands, cache: Cache) -> None:
    cache.telemetry = None
    assert patch(commands, 1, {"policy": "lru"})["version"] == 2
    assert cache.policy.name == "lru", "in force at once"
    assert cache.sink.payloads == []


@pytest.mark.parametrize(("version", "changes", "error"), [
    (9, {"gamma": 0.5}, StaleVersion), (1, {"gamma": 2}, UsageError), (1, {"gamma": 0.5, "nope": 1}, UsageError),
    (1, {"k": 2.5}, UsageError),
])
def test_a_refused_change_leaves_no_trace(
    commands: Commands, cache: Cache, version: int, changes: dict[str, Any], error: type[Exception],
) -> None:
    with pytest.raises(error):
        patch(commands, version, changes)
    assert (cache.knobs.version, cache.knobs["gamma"], commands.history, cache.sink.payloads) == (1, 0.8, [], [])


def test_an_unconfirmed_change_is_taken_back_by_its_own_clock(commands: Commands, cache: Cache, now: list[float]) -> None:
    patch(commands, 1, {"gamma": 0.1}, expires_s=10)
    commands.run("tick", now=1e6, wall_ns=6)
    assert cache.knobs["gamma"] == 0.1, "engine time is not what a person waits by"
    now[0] = 110.0
    commands.run("tick", now=1e6, wall_ns=6)
    assert cache.knobs["gamma"] == 0.8
    assert [(h["source"], h["wall_ns"]) for h in commands.history] == [("manual", 5), ("expiry", 6)]


def test_without_a_clock_of_its_own_it_expires_by_the_ticks(cache: Cache) -> None:
    commands = Commands(cache, dict)
    commands.run("tick", now=50.0, wall_ns=1)
    patch(commands, 1, {"gamma": 0.1}, expires_s=10)
    commands.run("tick", now=59.0, wall_ns=1)
    assert cache.knobs["gamma"] == 0.1
    commands.run("tick", now=60.0, wall_ns=1)
    assert cache.knobs["gamma"] == 0.8


def test_a_confirmed_change_stays(commands: Commands, cache: Cache, now: list[float]) -> None:
    patch(commands, 1, {"gamma": 0.1}, expires_s=10)
    with pytest.raises(StaleVersion):
        commands.run("confirm", version=9)
    assert commands.run("confirm", version=2) == {"version": 2, "step": 7}
    now[0] = 1e6
    commands.run("tick", now=1e6, wall_ns=6)
    assert cache.knobs["gamma"] == 0.1


def test_a_tick_retires_idle_workflows(commands: Commands, cache: Cache) -> None:
    workflow, _ = cache.state.begin_call(CallIdentity("w", "a"))
    cache.state.end_call(workflow)
    commands.run("tick", now=599.0, wall_ns=1)
    assert commands.run("state")["workflows"] == 1
    commands.run("tick", now=601.0, wall_ns=1)
    assert commands.run("state")["workflows"] == 0


def test_state_counts_and_adds_what_the_engine_says(commands: Commands, cache: Cache) -> None:
    state = commands.run("state")
    assert (state["engine"], state["server"], state["step"], state["leaves"], state["counts"]) == ("test", "one", 7, 0, cache.counts)


def test_the_history_is_bounded(commands: Commands) -> None:
    for version in range(1, MAX_HISTORY + 30):
        patch(commands, version, {"k": version % 8 + 1})
    assert len(commands.history) == MAX_HISTORY
    assert commands.history[-1]["version"] == MAX_HISTORY + 30


def test_as_a_message_every_outcome_has_a_status(commands: Commands) -> None:
    def send(op: str, body: object) -> int:
        status, text = commands.answer(op, json.dumps(body))
        assert isinstance(json.loads(text), dict)
        return status

    good: dict[str, Any] = {"patch": {"if_version": 1, "changes": {"k": 2}, "actor": "a"}, "wall_ns": 1}
    assert [send("patch", good), send("patch", good), send("knobs", {})] == [200, 409, 200]
    assert send("patch", {**good, "patch": {**good["patch"], "if_version": 2, "changes": {"k": 99}}}) == 422
    assert [send("nothing", {}), send("patch", {}), send("tick", {"now": "x"}), send("confirm", [])] == [500] * 4
    assert commands.answer("knobs", "not json")[0] == 500
    assert set(json.loads(commands.answer("knobs", "{}")[1])["knobs"]) == set(KNOBS)


def test_a_workflow_is_closed_by_name(cache: Cache) -> None:
    commands = Commands(cache, dict)
    cache.state.begin_call(CallIdentity("w", "a"))
    assert commands.run("close", workflow="w") == {"closed": True}  # it retires with its running call
    cache.state.end_call(cache.state.live["w"])
    assert commands.run("close", workflow="w") == {"closed": False}
    assert cache.state.live == {}
