"""Forecasts in words, and grids as curves and maps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.knobs import KNOBS
from pbkv.whatif import lines as drawing
from pbkv.whatif.forecast import Estimate
from pbkv.whatif.lines import lines, maps, numeric_axes, values
from pbkv.whatif.outcome import FIGURES
from pbkv.whatif.question import About, Found
from pbkv.whatif.setting import KNOB_FIELDS, Setting
from pbkv.whatif.words import NAMES, basis, changes_of, give_or_take, interval, setting_of, verdict


def test_every_figure_has_a_name() -> None:
    assert NAMES.keys() == FIGURES.keys() and len(set(NAMES.values())) == len(NAMES)


@pytest.mark.parametrize(("figure", "estimate", "words"), [
    ("hit", Estimate(0.6, 0.59, 0.61, 0.5), ("better", 1)),
    ("hit", Estimate(0.4, 0.39, 0.41, 0.5), ("worse", -1)),
    ("ttft_p95", Estimate(0.4, 0.39, 0.41, 0.5), ("better", 1)),
    ("ttft_p95", Estimate(0.6, 0.55, 0.65, 0.5), ("worse", -1)),
    ("ttft_p95", Estimate(0.6, 0.45, 0.75, 0.5), ("within its error", 0)),
    ("hit", Estimate(0.5, 0.5, 0.5, 0.5), ("no change", 0)),
    ("prefetches", Estimate(9, 8, 10, 5), ("more", 0)),
    ("prefetches", Estimate(2, 1, 3, 5), ("less", 0)),
])
def test_verdicts(figure: str, estimate: Estimate, words: tuple[str, int]) -> None:
    assert verdict(figure, estimate) == words


@given(st.sampled_from(sorted(FIGURES)), st.floats(-1e12, 1e12), st.floats(0, 1e12), st.floats(0, 1e12), st.floats(0, 1e12))
def test_a_verdict_is_sure_only_outside_the_interval(figure: str, value: float, down: float, up: float, present: float) -> None:
    estimate = Estimate(value, value - down, value + up, present)
    said, sign = verdict(figure, estimate)
    assert (said in ("within its error", "no change")) == (estimate.low <= present <= estimate.high)
    if sign:
        assert (value > present) == (sign * FIGURES[figure].better > 0) or down == up == 0


@pytest.mark.parametrize(("figure", "low", "high", "text"), [
    ("hit", 0.478, 0.489, "47.8 to 48.9 %"),
    ("hit", -0.01, 0.02, "0.0 to 2.0 %"),
    ("ttft_p95", 0.8, 1.25, "800 ms to 1.25 s"),
    ("ttft_p95", 0.8, 0.9, "800 to 900 ms"),
    ("moved_bytes", 1 << 30, 3 << 29, "1.0 to 1.5 GiB"),
    ("evicted_live", 950, 12_300, "950 to 12.3k"),
    ("calls_per_s", 1, 2, "1 to 2/s"),
])
def test_intervals(figure: str, low: float, high: float, text: str) -> None:
    assert interval(figure, Estimate((low + high) / 2, low, high, 0)) == text


@pytest.mark.parametrize(("figure", "value", "error", "text"), [
    ("hit", 0.521, 0.004, "0.4"), ("hit", 0.521, 0.0, ""), ("ttft_p95", 1.21, 0.0242, "24 ms"), ("ttft_p95", 0.983, 0.00983, "9.8"),
    ("moved_bytes", 322 << 30, 6.43 * (1 << 30), "6.4"), ("evicted_live", 1.9e6, 38_400, "38.0k"), ("prefetches", 9, 2, "2"),
])
def test_give_or_take(figure: str, value: float, error: float, text: str) -> None:
    assert give_or_take(figure, Estimate(value, value - error / 2, value + error, 0)) == text


def test_what_a_forecast_rests_on() -> None:
    about = About("x", 3120, 600, "2026-03-01T14:03:22", 950, {}, 1, 1)
    assert basis(about) == "10 min to 14:03:22 UTC, 3,120 calls (950 before them left out)"
    assert basis(About("x", 1, 45, "", 0, {}, 1, 1)) == "45 s, 1 call"


def test_knobs_that_are_no_part_of_a_forecast_are_left_out() -> None:
    setting = setting_of({knob.name: knob.default for knob in KNOBS.values()})
    assert set(setting.given) == set(KNOB_FIELDS)
    assert setting_of({"retire_idle_s": 5.0}) == Setting()


def test_what_a_setting_would_stage() -> None:
    knobs = {knob.name: knob.default for knob in KNOBS.values()}
    staged, cannot = changes_of(Setting(policy="lru", gamma=0.8, k=5, device_tokens=1000, concurrency=3), knobs)
    assert staged == {"policy": "lru", "k": 5} and cannot == ["device_tokens 1000", "concurrency 3"]
    assert changes_of(Setting(), knobs) == ({}, [])


def estimate(value: float) -> Estimate:
    return Estimate(value, value, value, 0.5)


def cell(value: float, **setting) -> Found:
    return Found(Setting(**setting), {"hit": estimate(value)})


GRID = [
    cell(0.1, policy="he", gamma=0.5, k=1), cell(0.2, policy="he", gamma=0.5, k=2), cell(0.3, policy="he", gamma=1.0, k=1),
    cell(0.4, policy="he", gamma=1.0, k=2), cell(0.05, policy="lru"), Found(Setting(policy="he", gamma=0.7, k=1), refused="no"),
]


def test_fields_that_vary() -> None:
    assert values(GRID) == {"policy": ["he", "lru"], "gamma": [0.5, 0.7, 1.0], "k": [1, 2]}
    assert numeric_axes(GRID) == ["gamma", "k"]
    assert numeric_axes([]) == [] and values([cell(0.1, k=1)]) == {}


def test_a_curve_for_each_of_the_others_and_a_flat_one_for_what_has_no_such_axis() -> None:
    found = {line.label: line for line in lines(GRID, "gamma", "hit")}
    assert list(found) == ["he k 1", "he k 2", "lru"]
    assert [(x, e.value) for x, e in found["he k 2"].points] == [(0.5, 0.2), (1.0, 0.4)]
    assert [(x, e.value) for x, e in found["lru"].points] == [(0.5, 0.05), (0.7, 0.05), (1.0, 0.05)]
    assert [line.flat for line in found.values()] == [False, False, True]
    assert lines(GRID, "gamma", "ttft_p95") == [] and lines([], "gamma", "hit") == []


def test_a_point_whose_field_nothing_reads_belongs_to_all_curves_of_that_field() -> None:
    # With k = 1 gamma is never used, so the grid has that cell once.
    grid = [cell(0.1, policy="he", k=1), cell(0.05, policy="lru")]
    grid += [cell(0.2 * g, policy="he", gamma=g, k=k) for g in (0.5, 1.0) for k in (2, 3)]
    found = {line.label: [x for x, _ in line.points] for line in lines(grid, "k", "hit")}
    assert found == {"lru": [1, 2, 3], "he gamma 0.5": [1, 2, 3], "he gamma 1": [1, 2, 3]}


def test_a_map_for_each_of_the_others() -> None:
    found = maps(GRID, "k", "gamma", "hit")
    assert list(found) == ["he"]
    assert found["he"].rows == (1, 2) and found["he"].columns == (0.5, 0.7, 1.0)
    assert [[c.value if c else None for c in row] for row in found["he"].cells] == [[0.1, None, 0.3], [0.2, None, 0.4]]


def test_a_field_that_nothing_reads_fills_its_row() -> None:
    # With k = 1 gamma is never used, so the grid has that cell once.
    found = maps([cell(0.1, k=1), cell(0.2, k=2, gamma=0.5), cell(0.3, k=2, gamma=1.0)], "k", "gamma", "hit")
    assert [[c.value if c else None for c in row] for row in found[""].cells] == [[0.1, 0.1], [0.2, 0.3]]


def test_pictures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MOST_LINES", 3)
    grid = [cell(0.1, concurrency=n, gamma=g, k=k) for n in range(1, 9) for g in (0.5, 1.0) for k in (1, 2)]
    assert len(lines(grid, "gamma", "hit")) == 3 and len(maps(grid, "k", "gamma", "hit")) == 3
