"""Single steps worked out by hand: what a call costs, what it waits for, how steps are cut."""

from typing import Any

import pytest

from pbkv.engine.engine import Engine
from pbkv.engine.requests import EngineRequest, Finished, pages_of
from pbkv.engine.settings import EngineSettings
from pbkv.engine.timing import Linear
from pbkv.errors import UsageError
from pbkv.knobs import KnobSet
from tests.engine.invariants import check_engine

PAGE = 10
#: 1 ms a token, 10 ms a decode step, 100 bytes a token over 1 kB/ms.
TIMING = Linear(0.0, 0.001, 0.0, 0.01, 0.0, 0.0, bytes_per_token=100, link_bytes_per_s=1e6)


def engine(policy: str = "lru", timing: Any = TIMING, **settings: Any) -> Engine:
    knobs = KnobSet()
    knobs.values.update(policy=policy, prefetch="off")
    made = Engine(EngineSettings(**{"page_size": PAGE, "device_tokens": 400, "timing": timing, **settings}), knobs)
    made.link.latency_s = 0.0
    return made


def request(number: int, key: int, prompt: int, output: int = 1, *, workflow: str = "w", final: bool = False) -> EngineRequest:
    """A call whose pages are `key`'s: two calls of one key share their beginning."""
    full, further = pages_of(prompt, output, PAGE)
    ids = tuple(key * 1000 + n for n in range(full + further))
    return EngineRequest(number, workflow, "A", ids[:full], prompt, output, ids[full:], final)


def serve(made: Engine, call: EngineRequest) -> Finished:
    made.submit(call)
    (ended,) = made.advance()
    check_engine(made)
    return ended


def test_a_call_costs_its_prefill_and_a_step_per_further_token() -> None:
    ended = serve(engine(), request(1, 1, 50, 11))
    assert (ended.first_token, ended.ended) == pytest.approx((0.050, 0.150))


def test_what_is_cached_is_not_computed_but_for_the_last_token() -> None:
    made = engine()
    serve(made, request(1, 1, 50, 11))
    again = serve(made, request(2, 1, 50))
    assert again.device_hit == 40, "the page of the last token is computed, since its output is needed"
    assert again.first_token - again.arrived == pytest.approx(0.010)
    longer = serve(made, request(3, 1, 65))
    assert longer.device_hit == 60, "prompt and output were kept"


def test_a_long_prompt_is_prefilled_in_chunks_before_anyone_decodes() -> None:
    made = engine(chunk_tokens=40)
    made.submit(request(1, 1, 10, 100))
    made.advance(0.011)
    made.submit(request(2, 2, 100, 1))
    started = made.now
    (ended,) = made.advance()
    assert ended.request.id == 2
    assert ended.first_token - started == pytest.approx(0.100, abs=0.011)
    assert len(list(made.tree.walk())) == 1 + 3, "a node per chunk"


def test_waiting_calls_are_prefilled_together_up_to_the_chunk() -> None:
    made = engine(chunk_tokens=60)
    for number in (1, 2, 3):
        made.submit(request(number, number, 30))
    ended = made.advance()
    assert [each.request.id for each in ended] == [1, 2]
    assert made.now == pytest.approx(0.060)


def test_no_more_calls_run_than_allowed() -> None:
    made = engine(max_running=2)
    for number in (1, 2, 3):
        made.submit(request(number, number, 10, 5))
    made.advance(0.021)
    assert (made.running, made.waiting) == (2, 1)
    made.advance()
    ended = made.advance()
    assert ended[0].admitted == pytest.approx(0.060), "when one has left"


def test_a_call_that_does_not_fit_waits_and_those_behind_it_too() -> None:
    made = engine(device_tokens=200)
    made.submit(request(1, 1, 90, 30))
    made.submit(request(2, 2, 100, 5))
    made.submit(request(3, 3, 10, 2))
    first = made.advance()
    assert [each.request.id for each in first] == [1]
    assert made.waiting == 2
    assert {each.request.id for each in [*made.advance(), *made.advance()]} == {2, 3}


def test_loads_from_the_host_are_waited_for() -> None:
    made = engine(host_tokens=400)
    serve(made, request(1, 1, 100))
    made.advance(10.0)
    made.copies.reap()
    made.tree.evict(40)
    again = serve(made, request(2, 1, 100))
    assert (again.device_hit, again.host_hit) == (0, 90)
    load = 90 * 100 / 1e6
    assert again.first_token - again.arrived == pytest.approx(load + 0.010)


def test_layers_hide_computing_behind_a_load() -> None:
    timing = Linear(0.0, 0.001, 0.0, 0.01, 0.0, 0.0, bytes_per_token=100, link_bytes_per_s=1e6, layers=10)
    made = engine(timing=timing, host_tokens=400)
    serve(made, request(1, 1, 100))
    made.advance(10.0)
    made.copies.reap()
    made.tree.evict(40)
    again = serve(made, request(2, 1, 104))
    assert again.host_hit == 100
    compute, load = 0.004, 0.010
    assert again.first_token - again.arrived == pytest.approx(load + compute / 10)


def test_write_back_is_waited_for() -> None:
    made = engine(device_tokens=200, host_tokens=400, write_policy="write_back")
    serve(made, request(1, 1, 150))
    later = serve(made, request(2, 2, 150))
    assert later.first_token - later.arrived == pytest.approx(150 * 100 / 1e6 + 0.150)
    assert made.copies.backup_bytes == 150 * 100


def test_decoding_waits_for_a_write_back_it_needs() -> None:
    made = engine(device_tokens=100, host_tokens=400, write_policy="write_back")
    serve(made, request(1, 1, 50))
    made.submit(request(2, 2, 39, 40))
    (ended,) = made.advance()
    assert made.copies.backup_bytes == 50 * 100
    assert ended.ended - ended.first_token == pytest.approx(39 * 0.010 + 50 * 100 / 1e6)


def test_hits_are_counted_on_what_was_cached_and_not_on_what_a_call_wrote() -> None:
    made = engine("lae")
    serve(made, request(1, 1, 50, 11))
    serve(made, request(2, 1, 50, 11))
    hits = {len(node.key): node.record.hits for node in made.tree.walk()}
    assert sorted(node.record.hits for node in made.tree.walk()) == [0, 0, 1], hits


def test_backups_lock_until_the_link_is_through() -> None:
    made = engine(host_tokens=400)
    serve(made, request(1, 1, 100))
    assert made.tree.device.locked == 10
    made.submit(request(2, 2, 10, 9))
    made.advance(made.now + 0.03)
    made.copies.reap()
    assert made.tree.device.locked == 1, "the running call's prompt, no longer the first call's pages"


def test_time_stops_at_until_but_for_the_step_under_way() -> None:
    made = engine()
    made.advance(5.0)
    assert made.now == 5.0
    made.submit(request(1, 1, 10, 101))
    made.advance(5.015)
    assert made.now == pytest.approx(5.020), "a prefill of 10 ms, then the decode step that begins at 5.010"
    made.advance(5.0201)
    assert made.now == pytest.approx(5.030)
    assert made.next_event() == made.now


@pytest.mark.parametrize("pieces", [0.013, 0.1, 7.0])
def test_pieces_of_time_add_up_to_the_same(pieces: float) -> None:
    def run(step: float | None) -> list[tuple[int, float]]:
        made = engine(device_tokens=300, max_running=3)
        for number in range(6):
            made.submit(request(number, number % 4, 60 + number, 20 + number))
        ended: list[Finished] = []
        while made.next_event() is not None:
            ended += made.advance() if step is None else made.advance(made.now + step)
        return [(each.request.id, round(each.ended, 9)) for each in ended]

    assert run(pieces) == run(None)


def test_a_call_can_arrive_inside_a_step() -> None:
    made = engine()
    made.submit(request(1, 1, 50, 2))
    made.advance(0.001)
    made.submit(request(2, 2, 10), at=0.020)
    ended = made.advance()
    assert ended[0].request.id == 2
    assert ended[0].arrived == 0.020 and ended[0].admitted == pytest.approx(0.050)


@pytest.mark.parametrize("when", ["waiting", "prefilling", "decoding"])
def test_an_aborted_call_leaves_no_trace(when: str) -> None:
    made = engine("he", max_running=1, chunk_tokens=20)
    made.submit(request(1, 1, 50, 20, workflow="other"))
    made.submit(request(2, 2, 100, 20))
    if when != "waiting":
        made.abort(1)
        made.advance(0.015 if when == "prefilling" else 0.115)
    ended = made.abort(2)
    assert ended is not None and ended.aborted
    check_engine(made)
    assert made.abort(2) is None
    while made.next_event() is not None:
        made.advance()
    assert made.tree.device.locked == made.tree.device.held == 0


def test_a_workflow_ends_with_its_last_call_or_by_being_closed_or_idle() -> None:
    made = engine("lae")
    serve(made, request(1, 1, 50, workflow="final", final=True))
    serve(made, request(2, 2, 50, workflow="closed"))
    serve(made, request(3, 3, 50, workflow="idle"))
    assert set(made.manager.state.live) == {"closed", "idle"}
    assert made.close("closed") and not made.close("closed")
    made.advance(made.now + 300.0)
    assert set(made.manager.state.live) == {"idle"}
    made.advance(made.now + 400.0)
    assert not made.manager.state.live


def test_flush_empties_an_idle_engine_only() -> None:
    made = engine("he", host_tokens=400)
    made.submit(request(1, 1, 50, 3))
    assert not made.flush()
    made.advance()
    assert made.flush()
    assert made.tree.device.free == made.tree.device.size and made.tree.nodes == 0
    assert serve(made, request(2, 1, 50)).device_hit == 0


def test_plain_lru_is_not_followed_until_somebody_asks() -> None:
    made = engine()
    serve(made, request(1, 1, 50))
    assert made.manager.counts["calls"] == 0
    made.knobs.values["policy"] = "he"
    made.manager.knobs_changed({"policy"})
    serve(made, request(2, 1, 50))
    assert made.manager.counts["calls"] == 1 and set(made.manager.state.live) == {"w"}


@pytest.mark.parametrize(("wrong", "word"), [
    ({"prompt_tokens": 0}, "at least one"), ({"output_tokens": 0}, "at least one"), ({"pages": (1,)}, "page ids"),
    ({"output_pages": (1, 2)}, "page ids"), ({"max_tokens": 1000}, "shorten"), ({"id": 7}, "another call"),
])
def test_calls_that_cannot_run_are_refused_at_the_door(wrong: dict[str, Any], word: str) -> None:
    made = engine()
    made.submit(request(7, 1, 50, 3))
    with pytest.raises(UsageError, match=word):
        made.submit(request(1, 1, 50, 3)._replace(**wrong))
    assert made.waiting == 1


@pytest.mark.parametrize(("wrong", "word"), [
    ({"page_size": 0}, "page_size"), ({"device_tokens": 10}, "device_tokens"), ({"host_tokens": -1}, "host_tokens"),
    ({"write_policy": "through"}, "write_policy"), ({"max_running": 0}, "max_running"), ({"chunk_tokens": 5}, "chunk_tokens"),
    ({"link_shared": 0.0}, "link_shared"),
])
def test_impossible_engines_are_refused(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        EngineSettings(**{"page_size": PAGE, "device_tokens": 400, **wrong})


def test_queued_calls_hold_what_they_will_read_until_they_leave_the_queue() -> None:
    made = engine("first_use", max_running=1)
    serve(made, request(1, 1, 50, workflow="a"))
    made.submit(request(2, 2, 20, 9, workflow="b"))
    made.advance(made.now + 0.021)
    made.submit(request(3, 1, 50, workflow="c"))
    made.submit(request(4, 1, 50, workflow="d"))
    held = [node for node in made.tree.walk() if node.record.holds]
    assert held and all(len(node.record.holds or ()) == 2 for node in held)
    made.abort(4)
    assert all(len(node.record.holds or ()) == 1 for node in held)
    made.advance()
    made.advance()
    assert not any(node.record.holds for node in made.tree.walk())


def test_a_retracted_call_holds_again_and_starts_over() -> None:
    made = engine("first_use", device_tokens=240, max_running=4)
    for number in (1, 2, 3):
        made.scheduler.ratio = 0.0  # nobody reckons with what running calls will still generate
        made.submit(request(number, number, 30, 60, workflow=f"w{number}"))
        made.advance(made.now + 0.025)
    assert made.running == 3
    ended: list[Finished] = []
    seen = 0
    while made.next_event() is not None:
        ended += made.advance(made.now + 0.01)
        check_engine(made)
        seen = max(seen, len(made.manager._held))
    assert made.retractions > 0 and seen > 0
    assert sorted(each.request.id for each in ended) == [1, 2, 3]
    assert all(each.output_tokens == 60 and not each.aborted for each in ended)
    assert not made.manager._held
    assert sum(each.retracted for each in ended) == made.retractions
