"""Spans of decode steps against the same steps taken one by one."""

import random

from hypothesis import given
from hypothesis import strategies as st

from pbkv.engine.decoding import Decoding
from pbkv.engine.requests import Call, EngineRequest


def call(number: int, prompt: int, output: int) -> Call:
    made = Call(EngineRequest(number, "w", "a", (), prompt, output), number, 0.0)
    made.done, made.generated = prompt, 1
    return made


class Slow:
    """The same, call by call and step by step."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.left: dict[Call, int] = {}
        self.length: dict[Call, int] = {}

    def join(self, made: Call) -> None:
        self.left[made], self.length[made] = made.request.output_tokens - made.generated, made.done

    def leave(self, made: Call) -> None:
        del self.left[made], self.length[made]

    def step(self) -> int:
        """Pages that one step takes."""
        pages = sum(length % self.page == 0 for length in self.length.values())
        for made in self.left:
            self.left[made] -= 1
            self.length[made] += 1
        return pages


@given(st.integers(0, 1 << 16), st.sampled_from([1, 3, 16]))
def test_a_span_is_its_steps(seed: int, page: int) -> None:
    rng = random.Random(seed)
    fast, slow = Decoding(page), Slow(page)
    for number in range(40):
        if rng.random() < 0.6 or not fast.calls:
            made = call(number, rng.randint(1, 50), rng.randint(2, 40))
            fast.join(made)
            slow.join(made)
            continue
        if rng.random() < 0.2:
            away = rng.choice(list(fast.calls))
            length = slow.length[away]
            fast.leave(away)
            slow.leave(away)
            assert (away.done, away.request.output_tokens - away.generated) == (length, away.finish_step - fast.step)
            if rng.random() < 0.5 and away.request.output_tokens - away.generated > 1:
                away.generated += 1  # a retracted call gets a token from its second prefill
                fast.join(away)
                slow.join(away)
            continue
        steps = rng.randint(1, fast.steps_to_end())
        pages = fast.pages_needed(steps)
        assert fast.steps_within(pages, steps) == steps
        over = fast.run(steps)
        assert pages == sum(slow.step() for _ in range(steps))
        assert fast.kv_tokens == sum(slow.length.values())
        assert over == [made for made in fast.calls if slow.left[made] == 0]
        assert all(fast.generated(made) == made.request.output_tokens - left for made, left in slow.left.items())
        for made in over:
            fast.leave(made)
            slow.leave(made)
            assert made.generated == made.request.output_tokens
    assert fast.remaining() == sum(slow.left.values())
    assert sum(fast._phases) == len(fast)


def test_steps_within_stops_before_the_page_too_many() -> None:
    decoding = Decoding(4)
    decoding.join(call(1, 6, 30))
    decoding.join(call(2, 8, 30))
    # Contexts 6 and 8: pages are taken in steps 0 (8), 2 (6 -> 8), 4, 6, ...
    assert [decoding.pages_needed(n) for n in range(8)] == [0, 1, 1, 2, 2, 3, 3, 4]
    assert [decoding.steps_within(pages, 20) for pages in range(4)] == [0, 2, 4, 6]


def test_what_clients_announced_counts_until_they_leave() -> None:
    decoding = Decoding(4)
    made = Call(EngineRequest(1, "w", "a", (), 10, 5, max_tokens=100), 1, 0.0)
    made.done, made.generated = 10, 1
    decoding.join(made)
    assert decoding.remaining() == 99
    decoding.run(3)
    assert decoding.remaining() == 96
    decoding.leave(made)
    assert decoding.remaining() == 0
