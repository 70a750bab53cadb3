"""The lazy queue gives exactly the order of a full sort, whatever happened to it, and its heap stays small."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from pbkv.eviction.queue import LazyQueue


class Item:
    """A candidate whose key a test may change behind the queue's back. Not orderable, like a record."""

    def __init__(self, ident: int, key: int) -> None:
        self.ident, self.key = ident, key

    def __repr__(self) -> str:
        return f"Item({self.ident}, {self.key})"


def new_queue() -> LazyQueue[Item]:
    return LazyQueue(lambda c: (c.key,), lambda c: c.ident)


def drained(queue: LazyQueue[Item]) -> list[Item]:
    """The whole order, taken from a copy: looking must not repair what a later step would trip over."""
    copy = new_queue()
    copy._heap, copy._alive = list(queue._heap), dict(queue._alive)
    order: list[Item] = []
    while (item := copy.peek()) is not None:
        order.append(item)
        copy.discard(item)
    return order


def fully_sorted(items: set[Item]) -> list[Item]:
    return sorted(items, key=lambda c: (c.key, c.ident))


KEYS = st.integers(0, 6)  # few keys: ties are the rule


class QueueMachine(RuleBasedStateMachine):
    items = Bundle("items")

    def __init__(self) -> None:
        super().__init__()
        self.queue = new_queue()
        self.alive: set[Item] = set()
        self.made = 0
        self.most = 0

    def entered(self) -> None:
        self.most = max(self.most, len(self.alive))
        assert len(self.queue._heap) <= 64 + 4 * len(self.queue)

    @rule(target=items, key=KEYS)
    def add_new(self, key: int) -> Item:
        self.made += 1
        item = Item(self.made, key)
        self.queue.add(item)
        self.alive.add(item)
        self.entered()
        return item

    @rule(item=items, key=KEYS)
    def add_again(self, item: Item, key: int) -> None:
        if item not in self.alive:
            item.key = key  # outside the queue a key may go anywhere
        self.queue.add(item)
        self.alive.add(item)
        self.entered()

    @rule(item=items)
    def discard(self, item: Item) -> None:
        self.queue.discard(item)
        self.alive.discard(item)

    @rule(item=items, by=st.integers(1, 5))
    def rise_silently(self, item: Item, by: int) -> None:
        item.key += by

    @rule(item=items, by=st.integers(1, 5))
    def fall_and_push(self, item: Item, by: int) -> None:
        item.key -= by
        self.queue.push(item)
        self.entered() if item in self.alive else None

    @rule(item=items)
    def push_for_nothing(self, item: Item) -> None:
        before = len(self.queue._heap)
        self.queue.push(item)
        assert item in self.alive or len(self.queue._heap) == before

    @rule()
    def peek(self) -> None:
        assert self.queue.peek() is (fully_sorted(self.alive) or [None])[0]

    @rule()
    def peek_second(self) -> None:
        assert self.queue.peek_second() is [*fully_sorted(self.alive), None, None][1]

    @rule()
    def pop(self) -> None:
        item = self.queue.peek()
        if item is not None:
            self.queue.discard(item)
            self.alive.discard(item)

    @rule()
    def rebuild(self) -> None:
        self.queue.rebuild()
        assert len(self.queue._heap) == len(self.alive)

    @invariant()
    def order_is_a_full_sort(self) -> None:
        assert drained(self.queue) == fully_sorted(self.alive)

    @invariant()
    def members_are_known(self) -> None:
        assert len(self.queue) == len(self.alive)
        assert all(item in self.queue for item in self.alive)

    @invariant()
    def heap_is_bounded(self) -> None:
        assert len(self.queue._heap) <= 64 + 4 * self.most


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None, derandomize=True)
TestQueueMachine = QueueMachine.TestCase


def test_a_long_life_stays_sorted_and_small() -> None:
    rng, queue, alive = random.Random(7), new_queue(), set[Item]()
    for n in range(20_000):
        if len(alive) < 300:
            item = Item(n, rng.randrange(10_000))
            queue.add(item)
            alive.add(item)
        item = rng.choice(tuple(alive)) if n % 50 == 0 else next(iter(alive))
        item.key += rng.randrange(-50, 80)
        queue.push(item)
        if n % 3 == 0:
            victim = queue.peek()
            assert victim is not None
            assert victim is min(alive, key=lambda c: (c.key, c.ident))
            queue.discard(victim)
            alive.discard(victim)
        assert len(queue._heap) <= 64 + 4 * 300
    assert drained(queue) == fully_sorted(alive)


def test_evicting_everything_never_rebuilds(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = new_queue()
    for n in range(5_000):
        queue.add(Item(n, (n * 7919) % 5_003))
    rebuilt = []
    monkeypatch.setattr(LazyQueue, "rebuild", lambda self: rebuilt.append(1))
    keys = []
    while (item := queue.peek()) is not None:
        queue.discard(item)
        keys.append(item.key)
    assert keys == sorted(keys)
    assert not rebuilt


def test_each_victim_costs_few_key_computations() -> None:
    asked = 0

    def key(item: Item) -> tuple[int]:
        nonlocal asked
        asked += 1
        return (item.key,)

    queue: LazyQueue[Item] = LazyQueue(key, lambda c: c.ident)
    for n in range(10_000):
        queue.add(Item(n, n))
    asked = 0
    for _ in range(1_000):
        item = queue.peek()
        assert item is not None
        queue.discard(item)
    assert asked == 1_000


def test_a_fall_that_is_not_pushed_is_not_seen() -> None:
    """The contract's other side: without the push the order is wrong, so the tests above would notice a missing one."""
    queue = new_queue()
    low, high = Item(1, 5), Item(2, 9)
    queue.add(low)
    queue.add(high)
    high.key = 0
    assert queue.peek() is low
    queue.push(high)
    assert queue.peek() is high


def test_clear_forgets_everything() -> None:
    queue = new_queue()
    item = Item(1, 1)
    queue.add(item)
    queue.clear()
    assert queue.peek() is None
    assert queue.peek_second() is None
    assert item not in queue
    queue.push(item)
    assert queue.peek() is None
    queue.add(item)
    assert queue.peek() is item


def test_the_second_of_one_is_nobody() -> None:
    queue = new_queue()
    item = Item(1, 1)
    queue.add(item)
    queue.push(item)  # twice in the heap, once a candidate
    assert queue.peek_second() is None
    assert queue.peek() is item
