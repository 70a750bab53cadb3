"""Order and completeness: whatever is lost, repeated or reordered, each message leaves once and in order, or as a loss."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.stream import MAX_ANSWERS, Item, Key, Loss, Stream
from pbkv.events.publisher import REPLAY_CHUNK
from pbkv.events.wire import FLAG_HEARTBEAT, FLAG_NAMES, Header, Message

KEY = Key("s", 7, 0)


def message(seq: int, flags: int = 0, dropped: int = 0) -> Message:
    return Message(Header("s", 7, 0, seq, seq, 0, 0, dropped, 0, flags), {})


def seqs(items: list[Item]) -> list[int | tuple[int, int, str]]:
    return [(i.first, i.last, i.cause) if isinstance(i, Loss) else i.header.seq for i in items]


@dataclass
class Sender:
    """The publisher's replay rule: of first..last it sends what it holds, at most a chunk, then tells oldest and newest."""

    held: set[int] = field(default_factory=set)

    def answer(self, stream: Stream, asked: tuple[int, int]) -> list[Item]:
        first, last = asked
        oldest, newest = min(self.held, default=0), max(self.held, default=0)
        items: list[Item] = []
        for seq in range(max(first, oldest), min(last, first + REPLAY_CHUNK - 1, newest) + 1):
            if seq in self.held:
                items += stream.offer(message(seq))
        return items + stream.answered(asked, min(last, first + REPLAY_CHUNK - 1, newest), oldest)


def settle(stream: Stream, sender: Sender) -> list[Item]:
    items: list[Item] = []
    for _ in range(10_000):
        asked = stream.missing()
        if asked is None:
            return items
        items += sender.answer(stream, asked)
    raise AssertionError("never settles")


def test_in_order_passes_straight_through():
    stream = Stream(KEY)
    assert [seqs(stream.offer(message(n))) for n in (1, 2, 3)] == [[1], [2], [3]]
    assert stream.missing() is None
    assert (stream.gaps, stream.lost, stream.duplicates) == (0, 0, 0)


def test_swapped_messages_leave_in_order():
    stream = Stream(KEY)
    assert seqs(stream.offer(message(2))) == []
    assert stream.missing() == (1, 1)
    assert seqs(stream.offer(message(1))) == [1, 2]


def test_repeated_messages_are_dropped_and_counted():
    stream = Stream(KEY)
    for n in (1, 1, 3, 3):
        stream.offer(message(n))
    assert stream.duplicates == 2


def test_heartbeat_reveals_a_lost_tail():
    stream = Stream(KEY)
    stream.offer(message(1))
    assert stream.missing() is None
    assert stream.offer(message(4, FLAG_HEARTBEAT)) == []
    assert stream.missing() == (2, 4)
    assert stream.gaps == 1


def test_names_pass_without_touching_the_sequence():
    stream = Stream(KEY)
    assert len(stream.offer(message(0, FLAG_NAMES))) == 1
    assert (stream.done, stream.seen, stream.duplicates) == (0, 0, 0)


def test_catching_up_at_the_start_is_no_gap_but_a_later_hole_is():
    stream, sender = Stream(KEY), Sender(set(range(1, 101)))
    stream.offer(message(50, FLAG_HEARTBEAT))
    settle(stream, sender)
    assert (stream.gaps, stream.done) == (0, 50)
    stream.offer(message(53))
    assert stream.missing() == (51, 52)
    assert stream.missing() == (51, 52)
    assert stream.gaps == 1
    assert seqs(settle(stream, sender)) == [51, 52, 53]


def test_what_the_replay_buffer_no_longer_holds_is_one_loss():
    stream, sender = Stream(KEY), Sender(set(range(3000, 3100)))
    stream.offer(message(3099, FLAG_HEARTBEAT))
    items = settle(stream, sender)
    assert seqs(items)[0] == (1, 2999, "not held")
    assert seqs(items)[1:] == list(range(3000, 3100))
    assert stream.lost == 2999


def test_a_message_the_sender_dropped_is_lost_with_that_cause():
    stream, sender = Stream(KEY), Sender({1, 2, 4, 5})
    stream.offer(message(5, FLAG_HEARTBEAT))
    assert seqs(settle(stream, sender)) == [1, 2, (3, 3, "dropped"), 4, 5]


def test_a_sender_without_a_replay_buffer_does_not_hold_up_the_stream():
    stream, sender = Stream(KEY), Sender()
    stream.offer(message(5))
    items: list[Item] = []
    for _ in range(MAX_ANSWERS):
        asked = stream.missing()
        assert asked == (1, 4)
        items += sender.answer(stream, asked)
    assert seqs(items) == [(1, 4, "not held"), 5]


def test_a_hostile_jump_costs_one_loss_not_a_loop():
    stream, sender = Stream(KEY, done=10), Sender(set(range(1, 11)))
    stream.offer(message(2**63))
    assert seqs(settle(stream, sender)) == [(11, 2**63 - 1, "not held"), 2**63]


def test_bounded_buffer_drops_what_can_be_asked_for_again():
    stream, sender = Stream(KEY, max_held=3), Sender(set(range(1, 11)))
    for n in range(2, 11):
        stream.offer(message(n))
    assert stream.held == 3
    assert seqs(settle(stream, sender)) == list(range(1, 11))


def test_abandon_delivers_what_is_held_behind_the_holes():
    stream = Stream(KEY)
    for n in (1, 3, 6):
        stream.offer(message(n))
    stream.offer(message(8, FLAG_HEARTBEAT))
    assert seqs(stream.abandon("server gone")) == [(2, 2, "server gone"), 3, (4, 5, "server gone"), 6, (7, 8, "server gone")]
    assert stream.missing() is None


def test_give_up_stops_at_the_range_nobody_answered():
    stream = Stream(KEY)
    for n in (3, 6):
        stream.offer(message(n))
    assert seqs(stream.give_up((1, 2), "no answer")) == [(1, 2, "no answer"), 3]
    assert stream.missing() == (4, 5)


def test_a_restarted_collector_goes_on_behind_its_high_water():
    stream, sender = Stream(KEY, done=40), Sender(set(range(1, 61)))
    assert stream.offer(message(40)) == []
    stream.offer(message(60, FLAG_HEARTBEAT))
    assert seqs(settle(stream, sender)) == list(range(41, 61))
    assert stream.duplicates == 1


def test_sender_drops_are_remembered():
    stream = Stream(KEY)
    stream.offer(message(1, dropped=4))
    stream.offer(message(2, dropped=3))
    assert stream.sender_dropped == 4


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[int, list[int], set[int], list[int]]:
    """(sent, arrival order with losses and repeats, what replay holds, heartbeats after which arrivals)."""
    sent = draw(st.integers(1, 60))
    arrivals = draw(st.lists(st.integers(1, sent), max_size=120))
    held = draw(st.sets(st.integers(1, sent)))
    return sent, arrivals, held, draw(st.lists(st.integers(0, sent), max_size=5))


@given(deliveries(), st.integers(1, 8), st.integers(0, 20), st.randoms(use_true_random=False))
def test_every_message_once_in_order_or_lost(case, max_held, done, rng):
    sent, arrivals, held, beats = case
    stream, sender = Stream(KEY, done=min(done, sent), max_held=max_held), Sender(held)
    start, items = stream.done, []
    for seq in arrivals:
        items += stream.offer(message(seq))
        if beats and rng.random() < 0.2:
            items += stream.offer(message(beats.pop(), FLAG_HEARTBEAT))
        if rng.random() < 0.3 and (asked := stream.missing()):
            items += sender.answer(stream, asked)
    items += stream.offer(message(sent, FLAG_HEARTBEAT))
    items += settle(stream, sender)

    covered: list[int] = []
    for item in items:
        covered += range(item.first, item.last + 1) if isinstance(item, Loss) else [item.header.seq]
    assert covered == list(range(start + 1, sent + 1))
    lost = {n for i in items if isinstance(i, Loss) for n in range(i.first, i.last + 1)}
    assert stream.lost == len(lost)
    assert not lost & held, "what the replay buffer holds is never lost"
    assert stream.held == 0


@pytest.mark.parametrize("cause", ["server gone", "server restarted"])
def test_abandon_without_a_hole_says_nothing(cause):
    stream = Stream(KEY)
    stream.offer(message(1))
    assert stream.abandon(cause) == []
    assert stream.lost == 0
