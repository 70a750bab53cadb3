"""From results to figures, findings, tables and plots."""

import math
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.bench.cell import Cell, Result
from pbkv.bench.claims import findings
from pbkv.bench.compare import against, best, reach
from pbkv.bench.experiment import Experiment, Point, Spread, Summary, summarise
from pbkv.bench.page import page
from pbkv.bench.report import columns, markdown, table
from pbkv.bench.svg import Line, plot, ticks
from tests.bench.small import small

SEEDS = (0, 1)


def experiment(name: str, panel: str, xs: tuple[float, ...], hits: dict[str, tuple[float, ...]]) -> tuple[Experiment, dict[Cell, Result]]:
    """An experiment whose hit rates are given by series and x; times fall as hits rise, and differ between the seeds."""
    points: list[Point] = []
    results: dict[Cell, Result] = {}
    for s, (series, values) in enumerate(hits.items()):
        for n, (x, hit) in enumerate(zip(xs, values, strict=True)):
            cell = small(policy="he", gamma=s / 100, device_tokens=64_000 * (n + 1))
            points.append(Point(panel, series, x, cell))
            for seed in SEEDS:
                figures = {"hit": hit + seed, "hit_device": hit, "ttft_mean": 110.0 - hit, "latency_mean": 1100.0 - 10 * hit, "calls": 5.0}
                results[replace(cell, seed=seed).plain()] = figures
    return Experiment(name, name.title(), "x", tuple(points)), results


def summary(name: str, panel: str, xs: tuple[float, ...], **hits: tuple[float, ...]) -> Summary:
    made, results = experiment(name, panel, xs, {series.replace("__", " "): values for series, values in hits.items()})
    return summarise(made, results, SEEDS)


def test_figures_are_means_and_extremes_over_the_sets() -> None:
    made = summary("pressure", "HoVer, private", (0.2, 0.4), lru=(10.0, 20.0), lae=(30.0, 40.0))
    assert made.panels == ["HoVer, private"] and made.series("HoVer, private") == ["lru", "lae"] and made.xs("HoVer, private") == [0.2, 0.4]
    figures = made.figures["HoVer, private", "lae", 0.4]
    assert figures["hit"] == Spread(40.5, 40.0, 41.0)
    assert figures["hit_gain"] == Spread(20.0, 20.0, 20.0)
    assert figures["ttft_gain"].mean == pytest.approx(90.0 / 70.0)
    assert figures["latency_gain"].mean == pytest.approx(900.0 / 700.0)
    assert made.mean("HoVer, private", "nobody", 0.4) is None


def test_without_a_base_there_are_no_gains() -> None:
    made = summary("pressure", "HoVer, private", (0.2,), lae=(30.0,))
    assert not [n for n in made.figures["HoVer, private", "lae", 0.2] if n.endswith("gain")]


def test_every_cell_of_every_seed_is_asked_for() -> None:
    made, results = experiment("pressure", "p", (1.0, 2.0), {"lru": (1.0, 2.0), "lae": (3.0, 4.0)})
    assert {cell.plain() for cell in made.cells(SEEDS)} == set(results)


def test_comparisons_find_the_place() -> None:
    made = summary("pressure", "HoVer, private", (1.0, 2.0, 3.0), lru=(10.0, 20.0, 30.0), lae=(12.0, 50.0, 20.0))
    lead = against(made, "lae", "lru")
    most, least = best(made, made.panels, lead), best(made, made.panels, lead, least=True)
    assert most is not None and (most.value, most.where) == (pytest.approx(30.0), "HoVer, private, 2")
    assert least is not None and (least.value, least.x) == (pytest.approx(-10.0), 3.0)
    assert best(made, made.panels, against(made, "lae", "nobody")) is None
    assert reach("claim", 2.0, None) == []
    assert [f.holds for f in reach("claim", 29.0, most) + reach("claim", 31.0, most)] == [True, False]


def found(claim: str, **summaries: Summary) -> list[tuple[str, bool | None]]:
    return [(f.here, f.holds) for f in findings(summaries) if claim in f.claim]


def test_gains_of_the_paper_are_looked_for_along_the_curves() -> None:
    made = summary("pressure", "HoVer, shared", (1.0, 2.0), lru=(10.0, 50.0), lae=(20.0, 51.0), he__bayes=(40.0, 60.0))
    ratio = (40.5) / 10.5
    assert found("hit rate of he over LRU", pressure=made) == [(f"{ratio:.2f}x", True)]
    assert found("hit rate of LAE over LRU", pressure=made) == [(f"{20.5 / 10.5:.2f}x", True)]
    assert found("heavy pressure", pressure=made)[0][0].startswith("lru 10, lae 20, he bayes 40")
    assert found("nearest to the paper's", pressure=made) == [("lru 10, lae 20, he bayes 40", None)]


def test_a_gain_counts_with_whichever_predictor_has_it() -> None:
    made = summary("pressure", "HoVer, shared", (1.0,), lru=(10.0,), he__markov=(60.0,), he__bayes=(20.0,))
    assert found("hit rate of he over LRU", pressure=made) == [(f"{60.5 / 10.5:.2f}x", True)]


def test_first_use_is_judged_by_its_worst_place() -> None:
    made = summary("pressure", "SWE-bench, group", (1.0, 2.0), he__markov=(10.0, 50.0), first_use__markov=(30.0, 47.0))
    assert found("least lead", pressure=made) == [("-3.0 points", False)]
    assert found("largest lead", pressure=made) == [("+20.0 points", None)]


def test_the_bound_is_the_largest_distance() -> None:
    made = summary("pressure", "p", (1.0, 2.0), clairvoyant=(40.0, 60.0), first_use__perfect=(38.0, 55.0))
    assert found("clairvoyant ahead of first_use", pressure=made) == [("5.0 points", False)]


def test_markov_between() -> None:
    made = summary("pressure", "HoVer, group", (1.0, 2.0), lae=(10.0, 10.0), he__markov=(20.0, 5.0), he__bayes=(30.0, 30.0))
    assert found("Markov lies between", pressure=made) == [("at 1 of 2 places", False)]


@pytest.mark.parametrize(("gains", "holds"), [((1.0, 20.0, 2.0), True), ((20.0, 10.0, 2.0), False), ((1.0, 5.0, 20.0), False)])
def test_an_inverted_u_has_its_peak_inside(gains: tuple[float, ...], holds: bool) -> None:
    made = summary("concurrency", "HoVer, private", (16.0, 64.0, 160.0), lru=(10.0, 10.0, 10.0), he__bayes=tuple(10.0 + g for g in gains))
    assert [h for _, h in found("inverted U", concurrency=made)] == [holds]


def test_the_plateau_of_k() -> None:
    made = summary("horizon", "HoVer, private", (1.0, 3.0, 8.0), he__bayes=(30.0, 40.0, 40.5), first_use__bayes=(30.0, 35.0, 40.0))
    assert found("K plateau", horizon=made) == [
        ("best at 8; K=1 -10.5, K=3 -0.5, K=8 +0.0", True), ("best at 8; K=1 -10.0, K=3 -5.0, K=8 +0.0", False),
    ]


def test_noise_is_judged_by_slope_and_least_lead() -> None:
    made = summary("noise", "HoVer, private", (0.0, 0.6), lae=(20.0, 20.0), he__perfect=(50.0, 38.0))
    assert found("graceful", noise=made) == [("-2.0 points per 10 %, least lead over LAE +18.0", True)]


def test_regret_is_what_belady_is_ahead() -> None:
    made = summary("regret", "HoVer, private", (0.0, 0.2, 0.6), belady=(60.0, 60.0, 60.0), first_use__perfect=(58.0, 55.0, 40.0))
    assert found("regret against Belady", regret=made) == [("2.0 points without error, at most 3.0 more per 10 %", True)]


def test_prefetch_is_judged_between_20_and_30_percent() -> None:
    made = summary("prefetch", "4 GB/s", (0.0, 0.2, 0.4), conservative=(50.0, 50.0, 50.0), aggressive=(10.0, 45.0, 10.0))
    assert found("aggressive prefetch", prefetch=made) == [("+8.3 % TTFT, +8.3 % latency", True)]


def test_tables_show_what_the_experiment_is_about() -> None:
    made = summary("pressure", "HoVer, private", (0.2, 0.4), lru=(10.0, 20.0), lae=(30.0, 40.0))
    text = markdown(made)
    assert "||0.2|0.4|\n" in text and "|lru|10.5 / 1.00|20.5 / 1.00|\n" in text and f"|lae|30.5 / {1000 / 800:.2f}|" in text
    assert "median 0.5, largest 0.5" in text and "base: lru" in text
    assert columns(made) == ("hit", "latency_gain")
    hosted = Experiment("host", "Host", "x", tuple(replace(p, cell=replace(p.cell, host_tokens=1 << 20)) for p in made.experiment.points))
    assert columns(Summary(hosted, made.figures))[0] == "hit_device"
    assert table(["a", "b"], [["1", "2"]]) == "|a|b|\n|---|---|\n|1|2|\n"


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    made = summary("pressure", 'HoVer "<private>"', (0.2, 0.4), lru=(10.0, 20.0), he__bayes=(30.0, 40.0), other__one=(1.0, 2.0))
    text = page([made], findings({"pressure": made}), {"sets": "<2>"})
    assert text.startswith("<!doctype html>") and "&lt;2&gt;" in text and "<private>" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text and "<script" not in text
    for svg in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")
    assert page([made], findings({"pressure": made}), {"sets": "<2>"}) == text


FLOATS = st.floats(-1e6, 1e6, allow_nan=False)


@given(FLOATS, FLOATS)
def test_ticks_hold_the_range_in_few_even_steps(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    found = ticks(low, high)
    assert 2 <= len(found) <= 12
    assert found[0] <= low + 1e-6 * max(abs(low), 1e-3) and found[-1] >= high - 1e-6 * max(abs(high), 1e-3)
    steps = [y - x for x, y in pairwise(found)]
    assert min(steps) > 0 and max(steps) - min(steps) <= 1e-6 * max(abs(found[0]), abs(found[-1]))


@given(st.lists(st.tuples(FLOATS, FLOATS, st.floats(0, 100)), min_size=1, max_size=8, unique_by=lambda p: p[0]))
def test_every_point_is_inside_the_picture(points: list[tuple[float, float, float]]) -> None:
    points = sorted(points)
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    line = Line("a&b", "#000", xs, ys, [y - d for _, y, d in points], [y + d for _, y, d in points])
    svg = ElementTree.fromstring(plot("<t>", "x", "y", [line]))
    for dot in svg.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 <= float(dot.attrib["cx"]) <= 380 and 0 <= float(dot.attrib["cy"]) <= 250
    assert not math.isnan(float(svg.attrib["viewBox"].split()[2]))


def test_a_plot_of_nothing_is_nothing() -> None:
    assert plot("t", "x", "y", []) == ""
