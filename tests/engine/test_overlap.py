"""With overlap a step is chosen before the results of the one before are taken in: what it cached and freed comes one step late."""

from typing import Any

import pytest

from pbkv.engine.engine import Engine
from pbkv.engine.requests import EngineRequest, Finished, pages_of
from pbkv.engine.settings import EngineSettings
from pbkv.engine.timing import Linear
from pbkv.knobs import KnobSet
from tests.engine.invariants import check_engine
from tests.engine.test_engine import checked, engine, played

PAGE = 10
#: A prefill step takes a second, a decode step a tenth.
TIMING = Linear(prefill_base_s=1.0, prefill_token_s=0.0, decode_base_s=0.1)


def made(*, overlap: bool, device: int = 1000, **settings: Any) -> Engine:
    sizes: dict[str, Any] = {"page_size": PAGE, "device_tokens": device, "host_tokens": 0, "chunk_tokens": 100, "timing": TIMING}
    return Engine(EngineSettings(**{**sizes, **settings}, overlap=overlap), KnobSet({**KnobSet().values, "policy": "lae"}))


def ask(number: int, prompt: int, output: int = 1, key: int = 1, workflow: str = "w", final: bool = False) -> EngineRequest:
    full, further = pages_of(prompt, output, PAGE)
    return EngineRequest(
        number, workflow, "A", tuple(key * 1000 + n for n in range(full)), prompt, output,
        tuple(number * 100_000 + n for n in range(further)), final,
    )


def run(engine: Engine, until: float = float("inf")) -> list[Finished]:
    found: list[Finished] = []
    while ended := engine.advance(until):
        found += ended
    check_engine(engine)
    return found


@pytest.mark.parametrize(("overlap", "hits"), [(False, [0, 90, 90, 90]), (True, [0, 0, 90, 90])])
def test_what_a_step_cached_is_found_one_step_later(overlap: bool, hits: list[int]) -> None:
    """Each prompt fills a step, so the second is chosen when the first has just been computed."""
    engine = made(overlap=overlap)
    for number in range(4):
        engine.submit(ask(number, 100 - number % 2, 30))
    assert [each.device_hit for each in sorted(run(engine), key=lambda each: each.request.id)] == hits


@pytest.mark.parametrize("overlap", [False, True])
def test_times_are_those_of_the_steps(overlap: bool) -> None:
    engine = made(overlap=overlap)
    engine.submit(ask(1, 50, 11))
    (ended,) = run(engine)
    assert (ended.first_token, ended.ended) == (pytest.approx(1.0), pytest.approx(2.0))
    assert not engine.running and engine.next_event() is None


def test_a_chunk_is_cached_before_the_next_step_is_chosen() -> None:
    """As SGLang puts a prompt that goes on into the tree first."""
    engine = made(overlap=True, chunk_tokens=50)
    engine.submit(ask(1, 100, 5))
    engine.advance(0.5)
    assert engine.tree.nodes == 1
    run(engine)


def test_room_of_what_has_ended_is_given_one_step_later() -> None:
    """The third call fits only into the room of the second."""
    admitted: list[float] = []
    for overlap in (False, True):
        engine = made(overlap=overlap, device=240)
        for request in (ask(1, 100, 60, key=1), ask(2, 20, 11, key=2), ask(3, 60, 5, key=3)):
            engine.submit(request)
        admitted.append({each.request.id: each.admitted for each in run(engine)}[3])
    assert admitted == [pytest.approx(3.0), pytest.approx(3.1)]


def test_so_does_a_place_among_the_running() -> None:
    admitted: list[float] = []
    for overlap in (False, True):
        engine = made(overlap=overlap, max_running=2)
        for request in (ask(1, 20, 60, key=1), ask(2, 20, 11, key=2), ask(3, 20, 5, key=3)):
            engine.submit(request)
        admitted.append({each.request.id: each.admitted for each in run(engine)}[3])
    assert admitted == [pytest.approx(2.0), pytest.approx(2.1)]


def test_an_abort_takes_in_what_is_late_first() -> None:
    engine = made(overlap=True)
    for number in (1, 2):
        engine.submit(ask(number, 60, 1 + number % 2 * 40))
    while engine.now < 1.0:
        engine.advance(0.5)
    assert engine.abort(1) is not None and engine.abort(7) is None
    check_engine(engine)
    assert [each.request.id for each in run(engine)] == [2]


@pytest.mark.parametrize("shape", [{"device_tokens": 900}, {"device_tokens": 900, "host_tokens": 1500, "prefetch": "aggressive"}], ids=str)
@pytest.mark.parametrize("policy", ["lru", "he", "first_use"])
def test_accounts_balance_after_every_step(shape: dict[str, Any], policy: str) -> None:
    prefetch = {"prefetch": shape.get("prefetch", "off")}
    sizes = {name: value for name, value in shape.items() if name != "prefetch"}
    late = played(checked(engine(policy, **prefetch, **sizes, overlap=True)), workflows=40)
    same = played(engine(policy, **prefetch, **sizes, overlap=True), workflows=40)
    without = played(engine(policy, **prefetch, **sizes), workflows=40)
    assert late.summary() == same.summary() != without.summary()


def test_short_memory_retracts_and_still_serves_everything() -> None:
    made = checked(engine(page_size=1, device_tokens=560, max_running=16, overlap=True))
    result = played(made, concurrency=16)
    assert result.retractions > 0
    assert (result.calls["ended"] >= result.calls["first_token"]).all()
    assert result.calls["output"].min() >= 1
