"""Admission, chunks, retraction and what prefetch is told, on a scheduler without time."""

from typing import Any

import pytest

from pbkv.engine.requests import DECODING, PREFILLING, Call, EngineRequest, pages_of
from pbkv.engine.scheduler import FIRST_RATIO, LEAST_RATIO, Scheduler
from pbkv.engine.settings import EngineSettings
from pbkv.engine.view import LoadRoom, NodeView
from pbkv.identity import CallIdentity
from tests.engine.invariants import check_tree
from tests.engine.parts import make_manager, make_tree

PAGE = 10


def scheduler(device: int = 400, host: int = 0, **settings: Any) -> Scheduler:
    sizes = {"page_size": PAGE, "device_tokens": device, "host_tokens": host, "max_running": 4, "chunk_tokens": 100}
    made = EngineSettings(**{**sizes, **settings})
    return Scheduler(make_tree(device, host, PAGE, made.write_policy), made)


def call(number: int, prompt: int, output: int = 20, *, key: int | None = None, announced: int = 0) -> Call:
    full, further = pages_of(prompt, output, PAGE)
    ids = tuple((number if key is None else key) * 1000 + n for n in range(full + further))
    return Call(EngineRequest(number, "w", "A", ids[:full], prompt, output, ids[full:], max_tokens=announced), number, 0.0)


def prefill(made: Scheduler) -> list[tuple[int, int]]:
    """One prefill step: (call, new tokens); calls whose prompt is through decode from now on."""
    batch = made.prefill_batch()
    for each, new in batch:
        complete = made.prefilled(each, new)
        made.checkpoint(each)
        if complete:
            made.decoding.join(each)
    check_tree(made.tree)
    return [(each.request.id, new) for each, new in batch]


def decode(made: Scheduler, steps: int) -> list[int]:
    """Decode steps for which there is room; ended calls leave."""
    room = made.make_decode_room(steps)
    assert room == steps
    over = made.decoded(steps)
    for each in over:
        made.decoding.leave(each)
        made.finish(each)
    check_tree(made.tree)
    return [each.request.id for each in over]


def test_a_batch_takes_prompts_up_to_the_chunk_and_continues_the_last_one() -> None:
    made = scheduler()
    made.waiting.extend([call(1, 60), call(2, 75), call(3, 10)])
    assert prefill(made) == [(1, 60), (2, 40)]
    assert made.chunked is not None and made.chunked.request.id == 2
    assert prefill(made) == [(2, 35), (3, 10)], "the call under way first, then what fits beside it"
    assert made.chunked is None and len(made.decoding) == 3


def test_chunks_end_at_page_borders() -> None:
    made = scheduler(chunk_tokens=25)
    made.waiting.append(call(1, 47))
    assert [prefill(made) for _ in range(3)] == [[(1, 20)], [(1, 20)], [(1, 7)]]


def test_the_prompt_that_came_in_between_is_shared_at_the_end_of_prefill() -> None:
    made = scheduler()
    made.waiting.extend([call(1, 40, key=5), call(2, 40, key=5)])
    assert prefill(made) == [(1, 40), (2, 40)], "neither knew of the other"
    assert made.device.locked == 4 and made.device.held == 0 and made.tree.nodes == 1


def test_announced_output_is_reckoned_with_and_less_of_it_as_time_goes() -> None:
    made = scheduler(300)
    made.waiting.append(call(1, 50, 200))
    prefill(made)
    made.waiting.append(call(2, 50, 60))
    assert prefill(made) == [], "50 + 60 + a page beside 0.7 of 199"
    assert made.full
    made.full, made.ratio = False, LEAST_RATIO
    assert prefill(made) == [(2, 50)]


def test_the_ratio_falls_to_its_floor() -> None:
    made = scheduler()
    made.waiting.append(call(1, 10, 2000, announced=2000))
    made.decoding.join(made.waiting.popleft())
    made.decoded(300)
    assert made.ratio == pytest.approx((FIRST_RATIO + LEAST_RATIO) / 2)
    made.decoded(1000)
    assert made.ratio == LEAST_RATIO


def test_a_refusal_closes_the_door_until_a_call_leaves() -> None:
    made = scheduler(200)
    made.waiting.append(call(1, 100, 21))
    prefill(made)
    made.waiting.append(call(2, 90, 21))
    assert prefill(made) == [] and made.full
    assert decode(made, 20) == [1]
    assert not made.full
    assert prefill(made) == [(2, 90)]


def test_the_cached_part_of_a_prompt_needs_no_room() -> None:
    made = scheduler(200)
    made.waiting.append(call(1, 100, 2, key=7))
    prefill(made)
    decode(made, 1)
    made.waiting.append(call(2, 150, 20, key=7))
    assert prefill(made) == [(2, 50)]


def test_the_fewest_tokens_and_then_the_longest_prompt_are_taken_back_first() -> None:
    made = scheduler(1000, max_running=8, chunk_tokens=1000)
    for number, prompt in ((1, 30), (2, 60)):
        made.waiting.append(call(number, prompt, 200))
    prefill(made)
    decode(made, 10)
    for number, prompt in ((3, 30), (4, 60)):
        made.waiting.append(call(number, prompt, 200))
    prefill(made)
    order = []
    while len(made.decoding) > 1:
        assert made.retract() is None
        order += [each.request.id for each in made.waiting][len(order) :]
        check_tree(made.tree)
    assert order == [4, 3, 2]
    again = made.waiting[0]
    assert (again.fill, again.retracted, again.tree_pages, again.done) == (61, 1, 0, 0)


def test_retraction_stops_when_the_next_step_fits() -> None:
    made = scheduler(200, max_running=8, chunk_tokens=1000)
    for number in (1, 2, 3):
        made.ratio, made.full = 0.0, False  # nobody reckons with what the others will still generate
        made.waiting.append(call(number, 30, 60))
        prefill(made)
    while made.make_decode_room(1):
        made.decoded(1)
    before = len(made.decoding)
    assert made.retract() is None
    assert (before, len(made.decoding)) == (3, 2)
    assert made.make_decode_room(1) == 1
    assert LEAST_RATIO <= made.ratio <= 1.0


def test_a_call_that_fits_no_more_even_alone_is_given_up() -> None:
    made = scheduler(70)
    made.waiting.append(call(1, 20, 30))
    prefill(made)
    (alone,) = made.decoding.calls
    decode(made, 20)
    made.device.free -= 3  # as if somebody else held the rest
    assert made.make_decode_room(10) == 0
    assert made.retract() is alone
    made.drop(alone)
    assert made.device.held == made.device.locked == 0


@pytest.mark.parametrize("where", ["waiting", PREFILLING, DECODING])
def test_dropping_a_call_frees_what_only_it_held(where: Any) -> None:
    made = scheduler(chunk_tokens=40)
    dropped = call(1, 85, 30)
    made.waiting.append(dropped)
    for _ in range({"waiting": 0, PREFILLING: 2, DECODING: 3}[where]):
        prefill(made)
    made.drop(dropped)
    assert not made.waiting and made.chunked is None and not made.decoding.calls
    assert made.device.held == made.device.locked == 0
    assert made.device.cached == {"waiting": 0, PREFILLING: 8, DECODING: 8}[where], "full pages stay, the partial one does not"
    check_tree(made.tree)


def test_prefetch_is_told_what_a_load_takes_and_what_room_running_calls_need() -> None:
    manager = make_manager({"policy": "he"})
    made = EngineSettings(page_size=PAGE, device_tokens=400, host_tokens=400, max_running=4)
    tree = make_tree(400, 400, PAGE, keeper=manager)
    running = Scheduler(tree, made)
    running.waiting.append(call(1, 20, 5))
    room = LoadRoom(tree, running)
    prefill(running)
    room.open()
    assert room.free_tokens() == running.device.free * PAGE - (4 + PAGE)
    decode(running, 4)
    room.open()
    assert room.free_tokens() == running.device.free * PAGE
    workflow, agent = manager.state.begin_call(CallIdentity("w", "A"))
    (node,) = tree.walk()
    manager.state.touch(workflow, agent, [node.record])
    assert room.load_tokens(node.record) == 0, "it is resident"
    tree.copies.settle()  # type: ignore[attr-defined]
    assert room.evict(5) == 20
    assert room.load_tokens(node.record) == 20
    assert NodeView().tier_of(node.record) == "host"
    assert room.load(node.record)
    assert room.load_tokens(node.record) == 0
    manager.state.close("w")
    manager.state.end_call(workflow)
    assert room.load_tokens(node.record) == 0, "nobody alive will read it"


def test_a_view_says_where_a_node_is() -> None:
    tree = make_tree(100, 100, PAGE)
    view = NodeView()
    tree.device.take(3)
    end = tree.insert(tree.root, (1, 2, 3), 0, 0, 0)
    assert (view.tier_of(end.record), view.tokens_of(end.record), view.parent_of(end.record)) == ("both", (30, 30), 0)
    assert not view.is_device_leaf(end.record)
    tree.copies.settle()  # type: ignore[attr-defined]
    assert view.is_device_leaf(end.record)
    tree.evict(3)
    assert (view.tier_of(end.record), view.tokens_of(end.record)) == ("host", (0, 30))
    record = end.record
    tree.evict_host(3)
    assert (view.tier_of(record), view.tokens_of(record)) == ("none", (0, 0)), "a record is still asked about after its node left"
