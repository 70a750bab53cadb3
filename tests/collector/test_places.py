"""Places for queries: never more than there are, and a free one goes to the client with the fewest."""

import threading

import pytest

from collector.places import Places
from tests.support.collector import eventually


class Held:
    """Holds a place for a client until told to let go."""

    def __init__(self, places: Places, client: str, timeout_s: float = 30.0) -> None:
        self.client = client
        self.got: bool | None = None
        self._let_go = threading.Event()
        self._places, self._timeout_s = places, timeout_s
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with self._places.place(self.client, self._timeout_s) as got:
            self.got = got
            self._let_go.wait(60 if got else 0)

    def let_go(self) -> None:
        self._let_go.set()
        self.thread.join(30)


def filled(places: Places, count: int, client: str) -> list[Held]:
    held = [Held(places, client) for _ in range(count)]
    eventually(lambda: all(h.got for h in held), "places taken")
    return held


def waiting(places: Places, clients: list[str]) -> list[Held]:
    held: list[Held] = []
    for client in clients:
        held.append(Held(places, client))
        count = len(held)
        eventually(lambda n=count: places.waiting == n, "waits")
    return held


def test_no_more_than_there_are():
    places = Places(3)
    running = filled(places, 3, "a")
    late = waiting(places, ["a"])
    running[0].let_go()
    eventually(lambda: late[0].got, "the freed place")
    for h in [*running[1:], *late]:
        h.let_go()
    assert all(h.got for h in filled_and_left(places, 3))


def filled_and_left(places: Places, count: int) -> list[Held]:
    held = filled(places, count, "x")
    for h in held:
        h.let_go()
    return held


def test_a_greedy_client_does_not_keep_the_others_out():
    """It has all places and ten more queries waiting before anybody else comes."""
    places = Places(4)
    running = filled(places, 4, "greedy")
    more = waiting(places, ["greedy"] * 10)
    others = [Held(places, "b"), Held(places, "c")]
    eventually(lambda: places.waiting == 12, "all wait")
    running[0].let_go()
    running[1].let_go()
    eventually(lambda: all(o.got for o in others), "the modest ones are next")
    assert not any(m.got for m in more)
    for h in [*running[2:], *others, *more]:
        h.let_go()


def test_equals_are_served_in_order():
    places = Places(1)
    first = filled(places, 1, "x")[0]
    queue = waiting(places, ["a", "b", "c"])
    for n, held in enumerate(queue):
        (first if n == 0 else queue[n - 1]).let_go()
        eventually(lambda h=held: h.got, "its turn")
        assert [q.got for q in queue[n + 1 :]] == [None] * (2 - n)
    queue[-1].let_go()


def test_who_waits_too_long_gets_none_and_leaves_no_trace():
    places = Places(1)
    running = filled(places, 1, "a")[0]
    late = Held(places, "b", timeout_s=0.05)
    late.thread.join(30)
    assert (late.got, places.waiting) == (False, 0)
    running.let_go()
    with places.place("c", 0) as got:
        assert got


def test_an_error_gives_the_place_back():
    places = Places(1)
    with pytest.raises(ZeroDivisionError), places.place("a", 0):
        _ = 1 / 0
    with places.place("a", 0) as got:
        assert got
