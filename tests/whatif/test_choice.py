"""The best setting under limits, and the front of those that nothing beats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.whatif.choice import Choice, Estimates, Limit, best, parse_figure, parse_limits, undominated
from pbkv.whatif.forecast import Estimate
from pbkv.whatif.outcome import FIGURES


def cell(hit: float, ttft: float, moved: float, error: float = 0.0) -> Estimates:
    figures = {"hit": hit, "ttft_p95": ttft, "moved_bytes": moved}
    return {name: Estimate(v, v - error * v, v + error * v, v) for name, v in figures.items()}


@pytest.mark.parametrize(("text", "limits"), [
    ("", ()),
    ("ttft_p95<800ms", (Limit("ttft_p95", True, 0.8),)),
    (" ttft_p95 <= 1.5 s , hit>50%,", (Limit("ttft_p95", True, 1.5), Limit("hit", False, 0.5))),
    ("moved_bytes<2GiB", (Limit("moved_bytes", True, 2 << 30),)),
    ("evicted_live<10k", (Limit("evicted_live", True, 10_000),)),
    ("evictions<5", (Limit("evictions", True, 5),)),
])
def test_limits_as_people_type_them(text: str, limits: tuple[Limit, ...]) -> None:
    assert parse_limits(text) == limits


@pytest.mark.parametrize("text", [
    "ttft_p95", "ttft_p95<", "<800ms", "ttft_p95=1s", "nothing<1", "ttft_p95<-1s", "ttft_p95<nan", "hit<1<2", "hit>50MiB",
    "x" * 5000,
])
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(UsageError, match="expected FIGURE<VALUE") as error:
        parse_limits(text, "--under")
    assert str(error.value).startswith("--under") and len(str(error.value)) < 600


def test_every_figure_may_be_limited() -> None:
    assert [limit.figure for name in FIGURES for limit in parse_limits(f"{name}<1")] == list(FIGURES)


@given(st.text(max_size=80))
def test_any_text_is_limits_or_one_sentence(text: str) -> None:
    try:
        limits = parse_limits(text)
    except UsageError:
        return
    assert all(limit.figure in FIGURES and limit.value >= 0 for limit in limits)


def test_too_many_limits() -> None:
    with pytest.raises(UsageError, match="9 limits: expected up to 8"):
        parse_limits("hit>1," * 9)


@pytest.mark.parametrize("text", ["", "hits", "prefetches", "HIT"])
def test_what_is_no_figure_to_be_best_in(text: str) -> None:
    with pytest.raises(UsageError, match="expected one of hit_device, "):
        parse_figure(text)


def test_the_best_under_a_limit() -> None:
    cells = [cell(0.5, 0.7, 100), cell(0.6, 0.9, 50), cell(0.4, 0.75, 60), {}]
    limits = parse_limits("ttft_p95<800ms")
    assert best(cells, limits, "moved_bytes") == Choice(2, True)
    assert best(cells, limits, "hit") == Choice(0, True)
    assert best(cells, (), "hit") == Choice(1, True)
    assert best(cells, parse_limits("ttft_p95<1ms"), "hit") is None
    assert best([], (), "hit") is None


def test_what_keeps_a_limit_for_sure_goes_before_what_may_break_it() -> None:
    close, safe = cell(0.6, 0.79, 10, error=0.1), cell(0.5, 0.5, 20, error=0.1)
    limits = parse_limits("ttft_p95<800ms")
    assert best([close, safe], limits, "moved_bytes") == Choice(1, True)
    assert best([close], limits, "moved_bytes") == Choice(0, False)
    assert best([close, safe], parse_limits("hit>55%"), "moved_bytes") == Choice(0, False)


def test_of_equals_the_first() -> None:
    assert best([cell(0.5, 1, 1), cell(0.5, 1, 1)], (), "hit") == Choice(0, True)


def test_a_figure_that_never_happened_is_never_best() -> None:
    assert best([{"hit": Estimate(1, 1, 1, 1)}], parse_limits("ttft_p95<1s"), "hit") is None
    assert best([{}], (), "hit") is None


def test_the_front() -> None:
    cells = [cell(0.5, 0.7, 100), cell(0.6, 0.9, 50), cell(0.4, 0.8, 100), {}, cell(0.5, 0.7, 100)]
    assert undominated(cells) == [0, 1, 4]
    assert undominated(cells, ("hit",)) == [1]


@given(st.lists(st.tuples(*[st.sampled_from([0.1, 0.2, 0.3])] * 3), max_size=12))
def test_the_front_is_beaten_by_nothing_and_beats_the_rest(points: list[tuple[float, float, float]]) -> None:
    cells = [cell(*point) for point in points]
    front = undominated(cells)

    def beats(a: int, b: int) -> bool:
        (h, t, m), (h2, t2, m2) = points[a], points[b]
        return (h >= h2 and t <= t2 and m <= m2) and points[a] != points[b]

    assert all(not beats(a, b) for b in front for a in range(len(points)))
    assert all(any(beats(a, b) for a in front) for b in range(len(points)) if b not in front)
    assert bool(front) == bool(points)
