"""Transfers over the link: order, bandwidth, both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.engine.link import Link

SIZES = st.lists(st.tuples(st.floats(0, 5), st.integers(1, 10**9), st.booleans()), min_size=1, max_size=30)


def test_a_transfer_takes_its_bytes_over_the_rate() -> None:
    link = Link(1e9, latency_s=0.0)
    assert link.to_device(2.0, 500_000_000) == pytest.approx(2.5)
    assert not link.idle(2.4)
    assert link.idle(2.5)


def test_one_direction_is_first_come_first_served_and_the_other_free() -> None:
    link = Link(1e9, latency_s=0.0)
    assert link.to_host(0.0, 10**9) == pytest.approx(1.0)
    assert link.to_host(0.5, 10**9) == pytest.approx(2.0)
    assert link.to_device(0.5, 10**9) == pytest.approx(1.5)


def test_a_shared_link_slows_what_overlaps() -> None:
    link = Link(1e9, shared=0.5, latency_s=0.0)
    link.to_host(0.0, 10**9)
    assert link.to_device(0.0, 10**8) == pytest.approx(0.2), "all of it at half rate"
    assert link.to_device(0.0, 10**9) == pytest.approx(0.2 + 0.8 + 0.6), "0.8 s at half rate, the rest alone"


@given(SIZES, st.sampled_from([0.25, 1.0]))
def test_no_transfer_is_faster_than_the_link_or_overtakes(transfers: list[tuple[float, int, bool]], share: float) -> None:
    link, now = Link(1e9, share), 0.0
    last = {True: 0.0, False: 0.0}
    moved = {True: 0, False: 0}
    for wait, size, down in transfers:
        now += wait
        began = max(now, last[down])
        done = (link.to_device if down else link.to_host)(now, size)
        assert began + size / 1e9 <= done <= began + link.latency_s + size / (1e9 * share) + 1e-9
        last[down], moved[down] = done, moved[down] + size
    assert (link.h2d_bytes, link.d2h_bytes) == (moved[True], moved[False])
    assert link.idle(max(last.values()))
    assert not link.idle(max(last.values()) - 1e-6)
