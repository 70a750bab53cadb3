"""What the What-if page and the forecast card show, from results made by hand."""

import json
from pathlib import Path

import pytest
from plotly.utils import PlotlyJSONEncoder

from dashboards.app import create_app
from dashboards.palette import DARK, LIGHT
from dashboards.whatif import draw
from dashboards.whatif.callbacks import _drawn, _place, best, kept, result_id, shown, texts
from dashboards.whatif.tune import card, unforecast
from pbkv.whatif.forecast import Estimate
from pbkv.whatif.question import About, Answer, Found, Present
from pbkv.whatif.results import Result
from pbkv.whatif.setting import Setting

ABOUT = About("gpu", 397, 600.0, "2026-03-01T12:00:00", 0, {"policy": "he"}, 60_000, 0)


def found(hit: float, **setting) -> Found:
    values = {"hit": hit, "ttft_p95": 1 - hit, "moved_bytes": 1e9, "prefetches": 3.0}
    return Found(Setting(**setting), {n: Estimate(v, v * 0.99, v * 1.01, {"hit": 0.5}.get(n, v)) for n, v in values.items()})


CELLS = (
    found(0.4, policy="lru"), Found(Setting(device_tokens=1), refused="too small"),
    *(found(g / 2 + k / 100, policy="he", gamma=g, k=k) for g in (0.5, 1.0) for k in (2, 3)),
)
RESULT = Result("a.duckdb", "2026-03-01T12:00:07+00:00", {"policy": "lru,he"}, 6, ABOUT, Present({"hit": 0.5}), CELLS, "hit>30%", "hit")


def plain(component) -> str:
    return json.dumps(component, cls=PlotlyJSONEncoder, ensure_ascii=False)


def test_curves_have_errors_and_flat_lines_none() -> None:
    figure = draw.curve(CELLS, "gamma", "hit", DARK)
    assert figure is not None
    by_name = {trace["name"]: trace for trace in figure["data"]}
    assert set(by_name) == {"lru", "he k 2", "he k 3"}
    assert by_name["he k 2"]["x"] == [0.5, 1.0] and by_name["he k 2"]["error_y"]["visible"] and not by_name["lru"]["error_y"]["visible"]
    assert figure["layout"]["xaxis"]["tickvals"] == [0.5, 1.0] and "better" in by_name["he k 3"]["text"][1]
    assert draw.curve((), "gamma", "hit", LIGHT) is None


def test_maps() -> None:
    assert [entry["value"] for entry in draw.axes_of(CELLS, "map")] == ["k gamma"]
    assert [entry["value"] for entry in draw.axes_of(CELLS, "curve")] == ["gamma", "k"]
    slices = draw.slices_of(CELLS, "k gamma", "hit")
    (trace,) = draw.heat(slices["he"], "k gamma", "hit", LIGHT)["data"]
    assert trace["x"] == ["0.5", "1"] and trace["y"] == ["2", "3"] and trace["text"][1][1] == "53.0 %"
    less = draw.heat(draw.slices_of(CELLS, "k gamma", "ttft_p95")["he"], "k gamma", "ttft_p95", LIGHT)["data"][0]
    assert less["z"][1][1] == max(v for row in less["z"] for v in row), "less is better, and better is brighter"


@pytest.mark.parametrize(("kind", "over", "drawn"), [
    ("curve", "gamma", True), ("map", "k gamma", True), ("curve", None, False), ("map", "host_tokens concurrency", False),
])
def test_what_is_drawn(kind: str, over: str | None, drawn: bool) -> None:
    figure, _, part = _drawn(CELLS, kind, over, "hit", "no such map", DARK)
    assert (figure is not None) == drawn and (part == "he" if kind == "map" and drawn else part is None)
    json.dumps(figure)


def test_rows_say_what_is_sure() -> None:
    rows = draw.rows(RESULT)
    assert rows[5]["mark"] == "★" and rows[1]["mark"] == ""
    assert rows[0]["hit_text"] == "40.0 % ±0.4" and rows[0]["hit_sign"] == -1 and rows[0]["moved_bytes_sign"] == 0
    assert "within its error" in rows[0]["moved_bytes_tip"] and rows[0]["evicted_live_text"] == "–"
    assert rows[1]["setting"] == "device 1: too small" and rows[1]["hit"] is None
    assert len({row["id"] for row in rows}) == len(rows)


def test_the_best_in_a_sentence() -> None:
    assert "Best hit rate under hit>30%: " in plain(best(RESULT)) and "★ he gamma 1 k 3" in plain(best(RESULT))
    assert best(None) == ""
    none = Result(**{**RESULT.__dict__, "under": "hit>99%"})
    assert best(none) == "Best hit rate under hit>99%: no setting keeps that"


def test_the_form_of_a_kept_result() -> None:
    assert texts(RESULT) | {"policy": "lru,he", "gamma": "", "last": "600s", "under": "hit>30%", "best": "hit"} == texts(RESULT)


@pytest.mark.parametrize(("selected", "place"), [
    (None, 5), ([], 5), ([{"id": "0"}], 0), ([{"id": "17"}], None), ([{"id": "x"}], None), ("nonsense", None), ([{}], None),
    ([{"id": "-1"}], None),
])
def test_which_row_is_staged(selected, place: int | None) -> None:
    assert _place(selected, RESULT) == place and _place(selected, None) is None


@pytest.mark.parametrize(("search", "id_"), [
    ("?result=abc", "abc"), ("?window=5m&result=abc", "abc"), ("", ""), (None, ""), ("?result=", ""),
])
def test_permalinks(search, id_: str) -> None:
    assert result_id(search) == id_


def test_what_a_permalink_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PBKV_STATE_DIR", str(tmp_path))
    site = create_app("grpc://127.0.0.1:1").server.state.site
    assert "None yet" in plain(kept(site, ""))
    id_ = site.desk.results.keep(RESULT)
    assert shown(site, "page", f"?result={id_}") == (RESULT, "")
    assert shown(site, "page", "") == (None, "")
    assert "twelve hexadecimal digits" in shown(site, "page", "?result=../../etc/passwd")[1]
    assert "not kept here" in shown(site, "page", "?result=0123456789ab")[1]
    links = plain(kept(site, id_))
    assert f"/whatif?result={id_}" in links and "wi-link current" in links and "2026-03-01 12:00 UTC" in links
    assert site.desk.quick._process is None, "looking starts no process"


def test_the_forecast_card() -> None:
    answer = Answer((Setting(gamma=0.5),), ABOUT, Present({"hit": 0.5}), {0: found(0.6, gamma=0.5)}, done=True, took_s=0.4)
    text = plain(card(answer, ["retire_idle_s"]))
    for words in ("hit rate", "50.0 %", "60.0 %", "±0.6", "+10.0, better", "within its error", "to 12:00:00 UTC, 397 calls", "0.4 s"):
        assert words in text, words
    assert "retire_idle_s is no part of one" in text
    assert "No forecast: 3 messages were lost" in plain(card(Answer(error="3 messages were lost", done=True), []))
    refused = Answer((Setting(k=1),), ABOUT, None, {0: Found(Setting(k=1), refused="k = 99: expected less")}, done=True)
    assert "No forecast: k = 99" in plain(card(refused, []))
    assert "a, b are no part of one" in plain(unforecast(["a", "b"]))
