"""Whole plays on small engines: accounts after every step, determinism, and what each setting must do."""

from typing import Any

import pytest

from pbkv.engine.engine import Engine
from pbkv.engine.play import Played, PlaySettings, play
from pbkv.engine.settings import EngineSettings
from pbkv.knobs import KnobSet
from tests.engine.invariants import check_engine
from tests.engine.workloads import Mixed

SHAPES: list[dict[str, Any]] = [
    {"page_size": 1, "device_tokens": 700},
    {"page_size": 16, "device_tokens": 900},
    {"page_size": 16, "device_tokens": 900, "host_tokens": 1500},
    {"page_size": 4, "device_tokens": 800, "host_tokens": 1200, "write_policy": "write_back"},
    {"page_size": 4, "device_tokens": 800, "host_tokens": 1200, "write_policy": "write_through_selective", "chunk_tokens": 32},
]


def engine(policy: str = "lru", prefetch: str = "off", **settings: Any) -> Engine:
    knobs = KnobSet()
    knobs.values.update(policy=policy, prefetch=prefetch)
    return Engine(EngineSettings(**{"max_running": 8, **settings}), knobs)


def checked(made: Engine) -> Engine:
    """The engine, whose accounts are checked after every step."""
    step = made._step

    def checked_step(until: float) -> bool:
        went_on = step(until)
        check_engine(made)
        return went_on

    made._step = checked_step  # type: ignore[method-assign]
    return made


def played(made: Engine, workflows: int = 60, **settings: Any) -> Played:
    return play(made, Mixed(), PlaySettings(**{"concurrency": 12, "workflows": workflows, **settings}))


@pytest.mark.parametrize("policy", ["lru", "lae", "he", "first_use", "kvflow"])
@pytest.mark.parametrize("shape", SHAPES)
def test_accounts_balance_after_every_step(shape: dict[str, Any], policy: str) -> None:
    made = checked(engine(policy, "conservative" if "host_tokens" in shape else "off", **shape))
    result = played(made)
    assert result.calls_measured > 100
    assert result.evicted_tokens > 0
    assert 0 < result.device_hit < 1
    assert (result.host_hit > 0) == ("host_tokens" in shape)


def test_the_same_calls_give_the_same_play() -> None:
    shape = SHAPES[3]
    first, second = (played(engine("he", "conservative", **shape)) for _ in range(2))
    assert first.calls.tobytes() == second.calls.tobytes()
    assert first.summary() == second.summary()


def test_short_memory_retracts_and_still_serves_everything() -> None:
    made = checked(engine(page_size=1, device_tokens=560, max_running=16))
    result = played(made, concurrency=16)
    assert result.retractions > 0
    assert (result.calls["ended"] >= result.calls["first_token"]).all()
    assert result.calls["output"].min() >= 1


@pytest.mark.parametrize("policy", ["he", "first_use"])
def test_room_for_a_prefetch_may_take_what_it_was_for(policy: str) -> None:
    """Write backs for its room drop host nodes, among them the one that was to be loaded."""
    result = played(checked(engine(policy, "aggressive", **SHAPES[3])), workflows=24, concurrency=8)
    assert result.prefetches > 0
