"""Numbers as they stand on the screen, and pictures out of block characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from console.top import format as f
from console.top.chart import area, cells, hold, share_bar, spark, stacked_bar


@pytest.mark.parametrize(("value", "text"), [
    (0, "0"), (999, "999"), (999.6, "1.0k"), (12_345, "12.3k"), (999_950, "1.0M"), (4_100_000, "4.1M"),
])
def test_counts(value: float, text: str) -> None:
    assert f.count(value) == text


@given(st.integers(0, 10**18))
def test_brief_counts_fit_four_cells(value: int) -> None:
    assert len(f.brief(value)) <= 4


@pytest.mark.parametrize(("value", "text"), [
    (0, "0 B"), (1023, "1023 B"), (1023.7, "1.0 KiB"), (64 << 20, "64.0 MiB"), (200 << 30, "200 GiB"),
])
def test_sizes(value: float, text: str) -> None:
    assert f.size(value) == text


@pytest.mark.parametrize(("value", "text"), [
    (None, "–"), (0.0, "0%"), (0.001, "<1%"), (0.5, "50%"), (0.994, "99%"), (0.999, ">99%"), (1.0, "100%"),
])
def test_a_share_reads_as_nothing_or_all_only_when_it_is(value: float | None, text: str) -> None:
    assert f.percent(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.42, "0.4 ms"), (34.4, "34 ms"), (999.6, "1.0 s"), (61_000, "1.0 min")])
def test_times(value: float | None, text: str) -> None:
    assert f.millis(value) == text


@pytest.mark.parametrize(("value", "text"), [
    (-1, "0.0s"), (0.4, "0.4s"), (12, "12s"), (99.4, "99s"), (100, "2m"), (7200, "2h"), (200_000, "2d"),
])
def test_ages(value: float, text: str) -> None:
    assert f.age(value) == text


@given(st.text(max_size=40), st.integers(0, 30))
def test_fitted_names_fit_and_keep_both_ends(text: str, width: int) -> None:
    fitted = f.fit(text, width)
    assert len(fitted) <= max(width, 0)
    if len(text) > width >= 3:
        assert fitted[0] == text[0] and fitted[-1] == text[-1]


@pytest.mark.parametrize(("value", "unit", "text"), [
    (0.8, "", "0.8"), (3, "steps", "3 steps"), (64 << 20, "bytes per decode step", "64.0 MiB"), (0, "bytes per decode step", "0 (off)"),
    ("he", "", "he"), (600.0, "s", "600 s"), ("odd", "bytes per decode step", "odd bytes per decode step"),
])
def test_knob_values(value: object, unit: str, text: str) -> None:
    assert f.knob_value(value, unit) == text


SHARES = st.lists(st.floats(0, 1e9, allow_subnormal=False), min_size=1, max_size=6)


@given(SHARES, st.integers(0, 60))
def test_a_bar_is_exactly_as_wide_as_asked(values: list[float], width: int) -> None:
    counts = cells(values, width)
    assert all(n >= 0 for n in counts)
    assert sum(counts) == (width if sum(values) > 0 else 0)
    assert all(n == 0 for n, v in zip(counts, values, strict=True) if v == 0)
    if width >= len(values):
        assert all(n >= 1 for n, v in zip(counts, values, strict=True) if v > 0)


@given(SHARES, st.integers(0, 60), st.floats(-0.5, 1.5))
def test_bars_as_text(values: list[float], width: int, share: float) -> None:
    assert stacked_bar([(v, "red") for v in values], width).cell_len == width
    assert share_bar(share, width, "red").cell_len == width
    assert share_bar(None, width, "red").cell_len == width


def test_a_share_bar_is_exact_to_an_eighth() -> None:
    assert share_bar(0.5, 4, "red").plain == "██  "
    assert share_bar(9 / 32, 4, "red").plain == "█▏  "
    assert share_bar(1.0, 2, "red").plain == "██"


def test_sparks_show_gaps_and_never_lose_a_zero() -> None:
    assert spark([0.0, 0.5, 1.0, None, 9.0], "red").plain == "▁▄█ █"


def test_stacked_areas() -> None:
    lines = [line.plain for line in area([[0.5, 0.25], [1.0, 0.0], None], ["red", "blue"], 2)]
    # Half red, a quarter blue above it: the lower cell is full, the upper one half full.
    assert lines == ["▄█ ", "██ "]


def test_a_cell_with_an_edge_inside_has_both_colours() -> None:
    cell = area([[0.5, 0.5]], ["red", "blue"], 1)[0]
    assert cell.plain == "▄"
    style = cell.get_style_at_offset(_console(), 0)
    assert style.color is not None and style.bgcolor is not None
    assert (style.color.name, style.bgcolor.name) == ("red", "blue")


def _console():
    from rich.console import Console

    return Console()


@given(st.lists(st.lists(st.floats(0, 0.3), min_size=3, max_size=3) | st.none(), max_size=20), st.integers(1, 8))
def test_areas_have_the_asked_size(columns: list[list[float] | None], height: int) -> None:
    lines = area(columns, ["red", "blue", "green"], height)
    assert len(lines) == height and all(isinstance(line, Text) and line.cell_len == len(columns) for line in lines)


def test_points_are_held_until_the_next() -> None:
    columns = hold([(0.5, (1.0,)), (0.76, (2.0,)), (0.79, (3.0,)), (5.0, (4.0,))], 8)
    assert columns == [None, None, None, None, (1.0,), (1.0,), (3.0,), (4.0,)]


def test_a_short_lead_is_filled_and_a_long_one_is_not() -> None:
    assert hold([(0.05, (1.0,))], 24)[0] == (1.0,)
    assert hold([(0.5, (1.0,))], 24)[0] is None
    assert hold([], 3) == [None, None, None]
