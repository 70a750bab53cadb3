"""Idle windows of the link: maximal runs of idle steps, cut when they last too long."""

import random
from itertools import pairwise

from pbkv.prefetch.window import MAX_WINDOW_NS, Window, WindowTracker


def test_a_window_runs_from_the_first_idle_step_to_the_first_busy_one() -> None:
    tracker = WindowTracker()
    assert [tracker.step(t, idle) for t, idle in ((10, False), (20, True), (30, True))] == [None] * 3
    assert tracker.step(45, False) == Window(20, 25, 0, 0)
    assert tracker.step(50, False) is None


def test_bytes_belong_to_the_window_they_moved_in() -> None:
    tracker = WindowTracker()
    tracker.moved(h2d=999, d2h=999)  # before it opened
    tracker.step(10, True)
    tracker.moved(h2d=5)
    tracker.moved(d2h=7)
    tracker.step(20, True)
    tracker.moved(h2d=5)
    assert tracker.step(30, False) == Window(10, 20, 10, 7)
    tracker.step(40, True)
    assert tracker.step(50, False) == Window(40, 10, 0, 0)


def test_a_long_window_is_cut_and_goes_on() -> None:
    tracker = WindowTracker()
    tracker.step(0, True)
    tracker.moved(h2d=1)
    assert tracker.step(MAX_WINDOW_NS - 1, True) is None
    assert tracker.step(MAX_WINDOW_NS + 5, True) == Window(0, MAX_WINDOW_NS + 5, 1, 0)
    tracker.moved(h2d=2)
    assert tracker.step(MAX_WINDOW_NS + 9, False) == Window(MAX_WINDOW_NS + 5, 4, 2, 0)


def test_windows_never_overlap_and_cover_all_idle_time() -> None:
    rng, tracker = random.Random(5), WindowTracker()
    windows, now, idle, expected = [], 0, False, 0
    for _ in range(5000):
        step = rng.randrange(1, 50_000_000)
        expected += step if idle else 0
        now += step
        idle = rng.random() < 0.95
        window = tracker.step(now, idle)
        if window:
            windows.append(window)
    last = tracker.step(now, False)
    total = sum(w.length_ns for w in windows) + (last.length_ns if last else 0)
    assert total == expected
    for one, two in pairwise(windows):
        assert one.start_ns + one.length_ns <= two.start_ns
