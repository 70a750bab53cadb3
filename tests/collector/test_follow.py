"""What an endpoint's follower asks for, when it gives up, and how it tells server restarts apart."""

import pytest

from collector import follow
from collector.follow import ANSWER_S, MAX_UNANSWERED, SILENT_S, Follower, Request, TooManyStreams
from collector.stream import Item, Key, Loss, Stream
from pbkv.events.wire import FLAG_HEARTBEAT, FLAG_NAMES, OP_NAMES, OP_REPLAY, Header, Message


def message(seq: int, epoch: int = 1, flags: int = 0, server: str = "s", rank: int = 0) -> Message:
    return Message(Header(server, epoch, rank, seq, 0, 0, 0, 0, 0, flags), {})


def shown(items: list[Item]) -> list[object]:
    return [(i.key.epoch, i.first, i.last, i.cause) if isinstance(i, Loss) else (i.header.epoch, i.header.seq) for i in items]


@pytest.fixture
def streams() -> dict[Key, Stream]:
    return {}


@pytest.fixture
def follower(streams: dict[Key, Stream]) -> Follower:
    return Follower(streams, {})


def answered_names(follower: Follower, now: float = 0.0) -> None:
    assert follower.request(now) == Request(OP_NAMES)
    assert follower.on_end(0, 0) == []


def test_names_are_asked_for_at_the_first_message_then_the_beginning_of_the_stream(follower: Follower):
    assert follower.request(0.0) is None
    assert follower.on_message(message(5), 1.0) == []
    answered_names(follower)
    assert follower.request(1.0) == Request(OP_REPLAY, 1, 4)
    assert follower.request(1.0) is None, "one request at a time"


def test_replay_goes_on_chunk_by_chunk(follower: Follower):
    follower.on_message(message(2000, flags=FLAG_HEARTBEAT), 1.0)
    answered_names(follower)
    assert follower.request(1.0) == Request(OP_REPLAY, 1, 2000)
    for seq in range(1, 513):
        follower.on_message(message(seq), 1.0)
    assert follower.on_end(1, 2000) == []
    assert follower.request(1.0) == Request(OP_REPLAY, 513, 2000)


def test_a_loss_makes_names_due_again(follower: Follower):
    follower.on_message(message(3), 1.0)
    answered_names(follower)
    follower.request(1.0)
    assert shown(follower.on_end(3, 3)) == [(1, 1, 2, "not held"), (1, 3)]
    assert follower.request(1.0) == Request(OP_NAMES)


def test_a_late_answer_of_an_expired_request_is_nobodys(follower: Follower):
    follower.on_message(message(3), 1.0)
    answered_names(follower)
    assert follower.request(1.0) is not None
    assert follower.tick(1.0 + ANSWER_S) == []
    assert follower.reset_requests, "the socket must be made anew, so that the late answer cannot arrive"
    assert follower.on_end(9, 9) == []


def test_an_unanswered_gap_is_given_up_only_while_the_server_goes_on(follower: Follower):
    now = 1.0
    follower.on_message(message(3), now)
    answered_names(follower)
    for _ in range(3 * MAX_UNANSWERED):
        assert follower.request(now) is not None
        now += ANSWER_S
        assert follower.tick(now) == [], "a suspended server loses nothing"
    items: list[Item] = []
    for n in range(MAX_UNANSWERED):
        assert follower.request(now) is not None
        items += follower.on_message(message(4 + n), now + 0.1)
        now += ANSWER_S
        items += follower.tick(now)
    assert shown(items) == [(1, 1, 2, "no answer"), *((1, n) for n in range(3, 9))]


def test_a_silent_server_with_a_hole_is_recorded_after_a_while(follower: Follower):
    follower.on_message(message(3), 1.0)
    assert follower.tick(1.0 + SILENT_S) == []
    assert shown(follower.tick(1.1 + SILENT_S)) == [(1, 1, 2, "server gone"), (1, 3)]


def test_a_new_epoch_ends_the_old_stream(follower: Follower, streams: dict[Key, Stream]):
    follower.on_message(message(1), 1.0)
    follower.on_message(message(3), 1.0)
    assert shown(follower.on_message(message(1, epoch=2), 2.0)) == [(1, 2, 2, "server restarted"), (1, 3), (2, 1)]
    assert set(streams) == {Key("s", 1, 0), Key("s", 2, 0)}
    assert follower.request(2.0) == Request(OP_NAMES)
    assert set(follower.ages(3.0)) == {Key("s", 2, 0)}


def test_a_straggler_of_the_old_epoch_does_not_switch_back(follower: Follower):
    follower.on_message(message(1), 1.0)
    follower.on_message(message(1, epoch=2), 2.0)
    assert follower.on_message(message(1), 2.1) == []
    assert shown(follower.on_message(message(2, epoch=2), 2.2)) == [(2, 2)]


def test_an_epoch_may_be_smaller_than_the_one_before(follower: Follower):
    follower.on_message(message(1, epoch=9), 1.0)
    assert shown(follower.on_message(message(1, epoch=3), 2.0)) == [(3, 1)]


def test_ranks_and_servers_are_streams_of_their_own(follower: Follower, streams: dict[Key, Stream]):
    for server, rank in (("a", 0), ("a", 1), ("b", 0)):
        assert len(follower.on_message(message(1, server=server, rank=rank), 1.0)) == 1
    assert len(streams) == 3


def test_the_same_server_behind_two_endpoints_is_stored_once(streams: dict[Key, Stream]):
    one, two = Follower(streams, {}), Follower(streams, {})
    assert len(one.on_message(message(1), 1.0)) == 1
    assert two.on_message(message(1), 1.0) == []
    assert streams[Key("s", 1, 0)].duplicates == 1


def test_an_earlier_run_is_continued(streams: dict[Key, Stream]):
    follower = Follower(streams, {Key("s", 1, 0): 10})
    follower.on_message(message(20, flags=FLAG_HEARTBEAT), 1.0)
    answered_names(follower)
    assert follower.request(1.0) == Request(OP_REPLAY, 11, 20)


def test_names_messages_do_not_count_as_hearing_the_stream(follower: Follower):
    follower.on_message(message(0, flags=FLAG_NAMES), 5.0)
    assert follower.ages(6.0) == {}


def test_finish_gives_up_holes_of_dead_servers_only(follower: Follower):
    follower.on_message(message(3, server="dead"), 1.0)
    follower.on_message(message(3, server="live"), 9.0)
    assert shown(follower.finish(10.0)) == [(1, 1, 2, "server gone"), (1, 3)]


def test_invented_servers_are_refused_at_the_limit(follower: Follower, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(follow, "MAX_STREAMS", 3)
    for n in range(3):
        follower.on_message(message(1, server=f"s{n}"), 1.0)
    with pytest.raises(TooManyStreams, match="3 streams"):
        follower.on_message(message(1, server="s3"), 1.0)
    assert len(follower.on_message(message(2, server="s0"), 1.0)) == 1, "known streams go on"


def test_an_unanswered_names_request_is_repeated(follower: Follower):
    follower.on_message(message(1), 1.0)
    assert follower.request(1.0) == Request(OP_NAMES)
    assert follower.tick(1.0 + ANSWER_S) == []
    assert follower.request(1.0 + ANSWER_S) == Request(OP_NAMES)
