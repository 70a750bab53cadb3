"""A grid in words, as JSON and as a page."""

import json
import math
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.whatif.charts import Dot, heat, scatter
from pbkv.whatif.choice import parse_limits
from pbkv.whatif.forecast import Estimate, Fidelity, Forecast, Residual
from pbkv.whatif.outcome import CALL_DTYPE, FIGURES, Outcome
from pbkv.whatif.page import page
from pbkv.whatif.pictures import curves_over, gamma_maps, pareto
from pbkv.whatif.report import Report, as_json, conclusion, heading
from pbkv.whatif.run import Grid, GridCell
from pbkv.whatif.setting import Setting
from pbkv.whatif.table import difference, fidelity_rows, said, table
from pbkv.whatif.units import change, shown
from tests.whatif.small import small

RECORDING = replace(small(4, device_tokens=64_000), measured={"hit": 0.5, "ttft_p95": 1.0}, losses=("12 messages were lost",))
_NONE = np.empty(0, CALL_DTYPE)
PRESENT = {"hit": 0.5, "hit_device": 0.5, "hit_host": 0.0, "ttft_p50": 0.4, "ttft_p95": 1.0, "moved_bytes": float(4 << 30)}


def cell(setting: Setting, error: float = 0.01, **figures: float) -> GridCell:
    """A cell with these figures and, of `error` of each, an interval around them."""
    found = {**PRESENT, **figures}
    estimates = {n: Estimate(v, v - error * abs(v), v + error * abs(v), PRESENT[n]) for n, v in found.items()}
    return GridCell(setting, Forecast(setting, estimates, Outcome(found, _NONE)))


def grid(*cells: GridCell, asked: int = 0) -> Grid:
    settings = tuple(c.setting for c in cells) + (Setting(),) * max(0, asked - len(cells))
    residuals = {"hit": Residual("hit", 0.5, 0.512), "ttft_p95": Residual("ttft_p95", 1.0, 0.97)}
    figures = dict.fromkeys(FIGURES, math.nan) | PRESENT
    return Grid(RECORDING, settings, Fidelity(Outcome(figures, _NONE), residuals), cells, asked > len(cells), len(cells))


CELLS = (
    cell(Setting(policy="lru"), hit=0.3, hit_device=0.3, ttft_p95=2.0, moved_bytes=1.0 * (1 << 30)),
    cell(Setting(policy="he", gamma=0.5), hit=0.502, ttft_p95=0.7, moved_bytes=5.0 * (1 << 30)),
    cell(Setting(policy="he", gamma=0.9), hit=0.6, hit_device=0.6, ttft_p95=0.79, moved_bytes=3.0 * (1 << 30)),
    GridCell(Setting(policy="first_use"), None, "out of luck"),
)


def report(**changes: object) -> Report:
    return replace(Report(grid(*CELLS), "x.duckdb", "14:00 to 15:00"), **changes)  # type: ignore[arg-type]


def test_the_first_lines_say_what_was_replayed_and_how_far_off() -> None:
    lines = heading(report())
    assert lines[0] == f"replayed: x.duckdb, 14:00 to 15:00: {RECORDING.calls} calls of 4 workflows"
    assert lines[1] == "residual (replayed less measured): TTFT p95 -30 ms"  # of the figures that are shown
    assert lines[2] == "missing: 12 messages were lost"
    trace = replace(report().grid, recording=small(4), fidelity=Fidelity(Outcome(PRESENT, _NONE), {}))
    assert "measured nothing" in heading(Report(trace, "t.jsonl"))[1]


def test_every_figure_of_the_present_with_its_residual() -> None:
    header, rows = fidelity_rows(report())
    found = {row[0]: row[1:4] for row in rows}
    assert header[:4] == ["figure", "measured", "replayed", "residual"]
    assert found["hit"] == ["50.0 %", "50.0 %", "+1.2"] and found["hit_host"] == ["-", "0.0 %", "-"]
    assert "ttft_p99" not in found  # never happened


def test_rows_are_the_present_then_the_settings() -> None:
    header, rows = table(report())
    assert header[:6] == ["policy", "gamma", "device hits", "TTFT p50", "TTFT p95", "bytes moved"]
    assert header[6:] == ["hit rate change", "TTFT p95 change", "bytes moved change", ""]
    assert rows[0] == ["he", "0.8", "50.0 %", "400 ms", "1 s", "4.0 GiB", "", "", "", "present"]
    assert rows[1][:6] == ["lru", "any", "30.0 %", "400 ms", "2 s", "1.0 GiB"]
    assert rows[1][6:] == ["-20.0 (-20.3 to -19.7)", "+1 s (+980 ms to +1.02 s)", "-3.0 GiB (-3.0 GiB to -3.0 GiB)", "front"]
    assert rows[2][6].startswith("~+0.2 (") and rows[2][-1] == "front" and rows[3][-1] == "best front"
    assert len(rows) == 4


def test_a_setting_that_is_the_present_is_there_once() -> None:
    _, rows = table(Report(grid(*CELLS, cell(Setting(policy="he", gamma=0.8), 0.0)), "x"))
    assert [row[-1] for row in rows].count("present") == 1 and rows[-1][6:9] == ["=", "=", "="] and len(rows) == 4


def test_figures_in_which_nothing_happens_are_left_out() -> None:
    still = {n: Estimate(0.0, 0.0, 0.0, 0.0) if n == "moved_bytes" else Estimate(v, v, v, v) for n, v in PRESENT.items()}
    header, _ = table(Report(grid(GridCell(Setting(policy="lru"), Forecast(Setting(policy="lru"), still, Outcome(PRESENT, _NONE)))), "x"))
    assert "bytes moved" not in header and "bytes moved change" not in header and "host hits" not in header


@pytest.mark.parametrize(("sort", "order"), [
    ("", ["lru", "he", "he"]), ("hit", ["he", "he", "lru"]), ("moved_bytes", ["lru", "he", "he"]), ("ttft_p95", ["he", "he", "lru"]),
])
def test_sorted_by_what_is_better(sort: str, order: list[str]) -> None:
    _, rows = table(report(sort=sort))
    assert [row[0] for row in rows[1:]] == order
    assert sum("best" in row[-1] for row in rows) == 1 and "best" in next(row for row in rows if row[1] == "0.9")[-1]


@pytest.mark.parametrize(("under", "figure", "words"), [
    ("", "hit", "policy=he gamma=0.9: most hit rate, 60.0 %"),
    ("", "moved_bytes", "policy=lru: least bytes moved, 1.0 GiB"),
    ("ttft_p95<800ms", "moved_bytes", "policy=he gamma=0.9: least bytes moved, 3.0 GiB, with ttft_p95<800ms"),
    ("ttft_p95<792ms", "moved_bytes", "policy=he gamma=0.5: least bytes moved, 5.0 GiB, with ttft_p95<792ms"),
    ("ttft_p95<700ms", "hit", "its error reaches beyond the limit"),
    ("ttft_p95<1ms", "hit", "no setting keeps ttft_p95<1ms"),
    ("ttft_p95<800ms,hit>0.55", "moved_bytes", "with ttft_p95<800ms and hit>55.0%"),
])
def test_the_best_under_a_limit(under: str, figure: str, words: str) -> None:
    lines = conclusion(report(limits=parse_limits(under), figure=figure))
    assert words in lines[0] and lines[-1].startswith("~ a change within its own error: 1 of 9")


def test_the_present_may_be_the_best() -> None:
    made = Report(grid(CELLS[0]), "x")
    assert conclusion(made)[0] == "best: as recorded: most hit rate, 50.0 %"
    assert table(made)[1][0][-1] == "best front present" and as_json(made)["best"] == {"place": 1, "sure": True, "setting": {}}


def test_nothing_finished_is_said() -> None:
    assert conclusion(Report(grid(CELLS[3]), "x")) == ["no setting is finished"]


@pytest.mark.parametrize(("name", "estimate", "text"), [
    ("hit", Estimate(0.531, 0.528, 0.534, 0.5), "+3.1 (+2.8 to +3.4)"), ("hit", Estimate(0.5, 0.49, 0.51, 0.5), "~+0.0 (-1.0 to +1.0)"),
    ("hit", Estimate(0.5, 0.5, 0.5, 0.5), "="), ("ttft_p95", Estimate(0.7, 0.7, 0.7, 1.0), "-300 ms"),
])
def test_differences(name: str, estimate: Estimate, text: str) -> None:
    assert difference(name, estimate) == text


@pytest.mark.parametrize(("value", "unit", "text"), [
    (0.5213, "share", "52.1 %"), (0.34, "s", "340 ms"), (0.0000004, "s", "0.4 us"), (1e-9, "s", "0 s"), (-0.0004, "share", "0.0 %"),
    (1.234, "s", "1.23 s"), (123.0, "s", "123 s"),
    (720.0, "s", "12.0 min"), (1536.0, "bytes", "1.5 KiB"), (0.0, "bytes", "0 B"), (999.6, "tokens", "1.0k"), (4_100_000, "tokens", "4.1M"),
    (1023.9, "bytes", "1.0 KiB"), (12.345, "1/s", "12.3/s"), (math.nan, "s", "–"),
])
def test_figures_in_words(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text


@given(st.floats(-1e15, 1e15), st.sampled_from(["share", "s", "bytes", "tokens", "1/s", ""]))
def test_changes_always_have_their_sign(value: float, unit: str) -> None:
    assert change(value, unit)[0] in "+-" and (change(value, unit)[0] == "-") == (math.copysign(1, value) < 0 and value != 0)


def test_settings_in_words() -> None:
    assert [said("policy", "he"), said("gamma", 0.5), said("k", 3), said("gamma", None)] == ["he", "0.5", "3", "any"]
    assert [said("prefetch_budget", 64 << 20), said("prefetch_budget", 0), said("device_tokens", 64_000)] == ["64.0 MiB", "0 B", "64.0k"]


def test_json_has_everything_and_no_nan() -> None:
    made = report(limits=parse_limits("ttft_p95<800ms"))
    found = json.loads(json.dumps(as_json(made), allow_nan=False))
    assert found["source"] == "x.duckdb" and found["calls"] == RECORDING.calls and found["losses"] == ["12 messages were lost"]
    assert found["present"]["hit"] == 0.5 and found["present"]["ttft_p99"] is None
    assert found["residuals"]["hit"]["error"] == pytest.approx(0.012)
    assert [c["setting"] for c in found["cells"]] == [{"policy": "lru"}, {"policy": "he", "gamma": 0.5}, {"policy": "he", "gamma": 0.9}]
    hit = found["cells"][0]["figures"]["hit"]
    assert hit["value"] == 0.3 and hit["change"] == pytest.approx(-0.2) and hit["certain"] and hit["low"] < 0.3 < hit["high"]
    assert found["failed"] == [{"setting": {"policy": "first_use"}, "error": "out of luck"}]
    assert found["best"] == {"place": 2, "sure": True, "setting": {"policy": "he", "gamma": 0.9}} and not found["stopped"]


def test_json_of_a_grid_that_was_stopped_at_once() -> None:
    found = as_json(Report(Grid(RECORDING, (Setting(policy="lru"),), None, (), True), "x"))
    assert found["present"] is None and found["cells"] == [] and found["best"] is None and found["stopped"]


# ---- pictures ----------------------------------------------------------------------------------------------------------------


def whole(text: str) -> None:
    """Every picture is well-formed and nothing is fetched from elsewhere."""
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text
    assert "<script" not in text and "url(" not in text and "nan" not in text
    for svg in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")


def full() -> Report:
    cells = [
        cell(Setting(policy=p, gamma=g, k=k, device_tokens=n), hit=0.5 + g / 10 + k / 100 + n / 1e6, ttft_p95=2 - g, moved_bytes=1e9 * k)
        for p in ("he", "first_use") for g in (0.2, 0.6, 1.0) for k in (1, 2) for n in (32_000, 64_000)
    ]
    return Report(grid(*cells), "<x>&.duckdb", limits=parse_limits("ttft_p95<1500ms"))


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    made = full()
    text = page(made, {"command": "pbkv whatif <x>"}, [(32_000, 0.5), (64_000, 0.6)])
    whole(text)
    assert text.startswith("<!doctype html>") and "<x>" not in text and "&lt;x&gt;&amp;.duckdb" in text
    for words in ("miss-ratio curve", "clairvoyant bound", "Gamma and K", "What each setting costs", "prefers-color-scheme:dark"):
        assert words in text
    assert text.count("<tr class=top>") == 1 and text.count("class=now") == 1
    assert page(made, {"command": "pbkv whatif <x>"}, [(32_000, 0.5), (64_000, 0.6)]) == text


def test_the_page_says_what_failed_and_what_was_stopped() -> None:
    text = page(Report(grid(*CELLS, asked=9), "x"), {})
    whole(text)
    assert "failed: policy=first_use: out of luck" in text and "stopped: 4 of 9 settings are finished" in text


def test_the_page_of_the_present_alone() -> None:
    text = page(Report(grid(), "x"), {"a": "b"})
    whole(text)
    assert "<svg" not in text and "hit_device" in text and "class=best" not in text


def test_curves_need_two_places() -> None:
    assert curves_over(report(), "device_tokens") == "" and gamma_maps(report()) == ""
    assert curves_over(full(), "device_tokens").count("<svg") == 2


def test_more_curves_than_can_be_told_apart_are_the_best_of_each_policy() -> None:
    html = curves_over(full(), "device_tokens")
    assert "of the other settings the one with the best hit rate" in html and html.count("<i style") == 2
    few = replace(full(), grid=grid(*[c for c in full().found if c.setting.gamma == 1.0 and c.setting.k == 2]))
    assert "of the other settings" not in curves_over(few, "device_tokens")


def test_maps_hold_every_tile_once() -> None:
    html = gamma_maps(full())
    assert html.count("<svg") == 4 and html.count("<rect") == 4 * 6 and "hit rate, %: he device 32.0k" in html


def test_dots_name_their_setting_and_the_front_is_outlined() -> None:
    html = pareto(report())
    assert html.count("<circle") == 4 and html.count('class="f"') == 3 and "he gamma 0.9: hit rate 60.0 %, TTFT p95 790 ms" in html
    assert pareto(Report(grid(), "x")) == ""


VALUES = st.floats(-1e9, 1e9, allow_nan=False)


@given(st.lists(st.tuples(VALUES, VALUES, st.floats(0, 1)), max_size=12))
def test_every_dot_is_inside_the_picture(points: list[tuple[float, float, float]]) -> None:
    text = scatter("<t>", "x", "y", [Dot(x, y, w, "a&b", "#000", w > 0.5) for x, y, w in points])
    if not points:
        assert text == ""
        return
    for dot in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 <= float(dot.attrib["cx"]) <= 380 and 0 <= float(dot.attrib["cy"]) <= 250


@given(st.integers(1, 40), st.integers(1, 12), st.lists(VALUES | st.none(), min_size=1, max_size=9))
def test_every_tile_is_inside_the_picture(columns: int, rows: int, found: list[float | None]) -> None:
    def tile(n: int) -> tuple[float, str] | None:
        value = found[n % len(found)]
        return None if value is None else (value, f"{value:g}")

    tiles = [[tile(row * columns + column) for column in range(columns)] for row in range(rows)]
    text = heat("<t>", "x", "y", [str(n) for n in range(columns)], [str(n) for n in range(rows)], tiles)
    known = [t for row in tiles for t in row if t is not None]
    if not known:
        assert text == ""
        return
    svg = ElementTree.fromstring(text)
    rects = list(svg.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(rects) == len(known)
    for rect in rects:
        assert 0.05 < float(rect.attrib["fill-opacity"]) <= 1.001 and float(rect.attrib["x"]) + float(rect.attrib["width"]) <= 380


def test_calls_that_only_warm_up_are_counted_apart() -> None:
    first, *rest = RECORDING.workflows
    timed = first._replace(calls=tuple(call._replace(arrived=float(n)) for n, call in enumerate(first.calls)))
    late = [w._replace(calls=tuple(call._replace(arrived=1e6) for call in w.calls)) for w in rest]
    recording = replace(RECORDING, workflows=(timed, *late), measured_from_s=3.0)
    assert heading(Report(replace(grid(), recording=recording), "x"))[0].endswith("calls of 4 workflows, the first 3 to warm the cache up")
