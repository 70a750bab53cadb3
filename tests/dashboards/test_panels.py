"""Every panel: what it draws, how much, what it says when there is nothing, and its CSV rows."""

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, timedelta

import pytest
from dash._utils import to_json
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.views.models import Evictions, HitPoint, Prefetches
from dashboards.palette import DARK, LIGHT
from dashboards.panels import accuracy, board, changes, evictions, hits, link, panel, prefetch, workflows
from dashboards.panels.grid import MAX_ROWS
from dashboards.panels.occupancy import DEVICE_PANEL, HOST_PANEL
from dashboards.panels.panel import Panel
from dashboards.scene import MAX_POINTS, Scene, palette, thin, zone
from tests.dashboards.factory import NOW, change, empty, full, sample, workflow

ALL = pytest.mark.parametrize("one", board.PANELS, ids=lambda p: p.name)


def scene(overview=None, colours=DARK) -> Scene:
    return Scene(overview or full(), colours, UTC)


@ALL
def test_draws_a_full_overview_in_both_themes(one: Panel):
    dark, light = one.draw(scene()), one.draw(scene(colours=LIGHT))
    assert dark and light and dark["data"]
    assert json.dumps(dark) != json.dumps(light)
    assert one.summary(full())
    json.loads(to_json(dark))


@ALL
def test_says_what_to_do_when_there_is_nothing(one: Panel):
    assert one.draw(scene(empty())) is None
    assert one.empty(empty()).endswith(".")
    assert one.summary(empty()) == ""
    props = panel.props(one, scene(empty()))
    assert props[f"{one.name}-plot"]["style"] == {"display": "none"}
    assert f"{one.name}-graph" not in props


@ALL
def test_shows_either_the_graph_or_the_sentence(one: Panel):
    props = panel.props(one, scene())
    assert props[f"{one.name}-plot"]["style"] == {"display": "block"}
    assert props[f"{one.name}-empty"]["style"] == {"display": "none"}
    assert props[f"{one.name}-graph"]["figure"]["layout"]["height"] == one.height


@ALL
def test_a_figure_is_bounded(one: Panel):
    many = full(
        occupancy_series=tuple(sample(3600 - i) for i in range(3600)),
        hit_series=tuple(HitPoint(NOW - timedelta(seconds=3600 - i), 1, 0.5, 0.1) for i in range(3600)),
    )
    drawn = one.draw(scene(many))
    assert drawn is not None
    assert all(len(trace["x"]) <= MAX_POINTS for trace in drawn["data"])
    assert len(json.dumps(drawn)) < 60_000


def test_layers_add_up_to_the_capacity():
    drawn = DEVICE_PANEL.draw(scene())
    assert drawn is not None
    assert {sum(values) for values in zip(*(t["y"] for t in drawn["data"][:4]), strict=True)} == {60_000}
    assert DEVICE_PANEL.summary(full()) == "50k of 60k tokens in use (83 %)"
    assert HOST_PANEL.summary(full()) == "70k of 120k tokens in use (58 %)"


def test_a_server_without_a_host_tier_says_how_to_get_one():
    bare = replace(sample(1), host_free=0, host_used=0, host_retired=0)
    overview = full(occupancy=bare, occupancy_series=(bare,))
    assert HOST_PANEL.draw(scene(overview)) is None
    assert "--enable-hierarchical-cache" in HOST_PANEL.empty(overview)
    assert "--radix-cache-backend" in HOST_PANEL.empty(empty())
    assert HOST_PANEL.summary(overview) == ""


def test_knob_changes_in_the_window_are_marked_once_per_version():
    drawn = hits.PANEL.draw(scene())
    assert drawn is not None
    marks = [t for t in drawn["data"] if t.get("name") == "knob change"]
    assert [len(m["x"]) for m in marks] == [1]
    assert marks[0]["customdata"] == ["knobs v3: k 3 → 2, gamma 0.8 → 0.6 · alice · step 3,000"]
    assert len(drawn["layout"]["shapes"]) == 1
    assert drawn["layout"]["xaxis"]["range"] == ["2026-03-01T11:59:00.000", "2026-03-01T12:00:00.000"]


def test_without_changes_nothing_is_marked():
    drawn = hits.PANEL.draw(scene(full(knob_changes=(change(2, 61),))))
    assert drawn is not None
    assert drawn["layout"]["shapes"] == []
    assert len(drawn["data"]) == 2


def test_accuracy_shows_n_and_leaves_out_unscored_steps():
    drawn = accuracy.PANEL.draw(scene())
    assert drawn is not None
    assert drawn["data"][0]["x"] == [1, 2]
    assert drawn["data"][0]["text"] == ["75 %<br>n=400", "60 %<br>n=200"]
    assert accuracy.PANEL.summary(full()) == "next agent right 300 of 400"


def test_accuracy_names_the_missing_identity():
    anonymous = full(accuracy=(), hit_rate=replace(full().hit_rate, unattributed_calls=400))
    assert "custom_params.pbkv" in accuracy.PANEL.empty(anonymous)
    assert "custom_params.pbkv" not in accuracy.PANEL.empty(full(accuracy=()))


def test_evictions_stack_by_reason_and_sum_beside_the_bar():
    drawn = evictions.PANEL.draw(scene())
    assert drawn is not None
    by_name = {t["name"]: t for t in drawn["data"]}
    assert by_name["retired"]["y"] == ["host, dropped", "device → host"]
    assert by_name["retired"]["x"] == [0, 4000]
    assert by_name["lowest score"]["x"] == [0, 12_000]
    assert by_name["total"]["text"] == ["900", "16k"]
    assert by_name["retired"]["marker"]["color"] == DARK.retired


@given(
    st.lists(
        st.builds(
            Evictions,
            st.sampled_from(["retired", "scored", "tie"]),
            st.sampled_from(["device", "host"]),
            st.sampled_from(["none", "host"]),
            st.integers(0, 50),
            st.integers(0, 10**9),
        ),
        max_size=12,
    )
)
@settings(deadline=None)
def test_no_eviction_is_lost_in_the_figure(rows: list[Evictions]):
    drawn = evictions.PANEL.draw(scene(full(evictions=tuple(rows))))
    total = sum(r.tokens for r in rows)
    assert (drawn is None) == (total == 0)
    if drawn is not None:
        assert sum(sum(t["x"]) for t in drawn["data"]) == total


def test_prefetch_outcomes_and_skips():
    outcomes, skips = prefetch.OUTCOMES_PANEL.draw(scene()), prefetch.SKIPS_PANEL.draw(scene())
    assert outcomes and skips
    assert outcomes["data"][0]["y"][::-1] == ["issued", "copied", "used", "late", "evicted unused"]
    assert outcomes["data"][0]["x"][::-1] == [145, 140, 63, 4, 70]
    assert skips["data"][0]["y"][::-1] == ["just evicted", "link busy", "something new"]
    assert prefetch.OUTCOMES_PANEL.summary(full()) == "12 GiB issued · 46 % of outcomes used"


def test_skipped_only_points_to_the_reasons():
    only = full(prefetches=Prefetches(0, 0, 0, 0, 0, 0, 0, (("no_space", 3),)))
    assert prefetch.OUTCOMES_PANEL.draw(scene(only)) is None
    assert "skipped" in prefetch.OUTCOMES_PANEL.empty(only)
    assert "prefetch_budget" in prefetch.OUTCOMES_PANEL.empty(empty())


def test_link_compares_moved_with_capacity():
    drawn = link.PANEL.draw(scene())
    assert drawn is not None
    assert drawn["data"][0]["text"] == ["1 GiB (1 %)", "12 GiB (14 %)", "84 GiB"]
    assert link.PANEL.summary(full()) == "459 idle windows · 4.51 s in all · median 9.7 ms"
    assert link.used_share(full()) == "14 %"
    assert link.used_share(empty()) == "–"


def test_moving_more_than_fitted_stays_in_the_plot():
    over = full(windows=replace(full().windows, capacity_bytes=1 << 30))
    drawn = link.PANEL.draw(scene(over))
    assert drawn is not None
    assert max(drawn["data"][0]["x"]) == 1


def test_workflow_rows_mark_right_and_wrong_in_words():
    rows = workflows.props(full())["workflows-grid"]["rowData"]
    assert [r["predicted"] for r in rows] == ["✓ coder", "✗ tester", "–"]
    assert rows[0] | {"hit_text": "72 %", "idle_text": "2 s", "prompt_text": "12.8k", "p_text": "0.78"} == rows[0]


def test_a_grid_is_bounded_and_says_so():
    props = workflows.props(full(workflows=tuple(workflow(n) for n in range(1000))))
    assert len(props["workflows-grid"]["rowData"]) == MAX_ROWS
    assert props["workflows-summary"]["children"] == "200 of 1,000 live shown, all in the CSV"
    assert props["workflows-grid"]["style"]["height"] == workflows.HEIGHT


def test_an_empty_grid_is_a_sentence():
    props = changes.props(empty(), UTC)
    assert props["changes-plot"]["style"]["visibility"] == "hidden"
    assert props["changes-empty"]["children"] == "No knob has been changed on record."


def test_change_rows_have_version_step_actor_and_time():
    row = changes.props(full(), UTC)["changes-grid"]["rowData"][0]
    assert (row["version_text"], row["step_text"], row["change"], row["actor"]) == ("v3", "3,000", "0.8 → 0.6", "alice")
    assert row["time"] == "2026-03-01 11:59:50"


@pytest.mark.parametrize("name", list(board.TABLES))
def test_every_table_is_rectangular_csv(name: str):
    for overview in (full(), empty()):
        header, rows = board.TABLES[name](overview)
        parsed = list(csv.reader(io.StringIO(board.to_csv((header, rows)))))
        assert parsed[0] == list(header)
        assert all(len(r) == len(header) for r in parsed)
        assert len(parsed) == len(rows) + 1


def test_csv_times_are_utc_whatever_the_viewers_zone():
    _, rows = board.TABLES["device"](full())
    assert rows[0][0] == "2026-03-01T11:59:00+00:00"


@given(st.text())
def test_csv_runs_no_formula_and_keeps_the_rest(text: str):
    cell = next(csv.reader(io.StringIO(board.to_csv((["a"], [[text]])).split("\r\n", 1)[1], newline="")), [""])
    stored = cell[0] if cell else ""
    assert not stored.startswith(("=", "+", "-", "@", "\t"))
    assert stored in (text, "'" + text)


def test_board_covers_every_panel_and_grid():
    props = board.props(scene())
    for name in board.TABLES:
        assert f"{name}-summary" in props
    assert props["tile-hit"]["children"] == "71 %"
    assert props["tile-hit-sub"]["children"] == "device 58 % · host 13 %"
    assert props["tile-ttft"]["children"] == "35 ms"
    assert props["tile-ttft-sub"]["children"] == "median · p95 1.25 s"


def test_board_of_nothing_says_unknown():
    props = board.props(scene(empty()))
    assert {props[f"tile-{k}"]["children"] for k in ("hit", "ttft", "predictor", "retired", "linkuse", "load")} == {"–"}


@given(st.integers(0, 5000), st.integers(1, 400))
def test_thin_keeps_the_newest_and_the_limit(n: int, limit: int):
    kept = thin(range(n), limit)
    assert len(kept) <= limit
    assert not n or kept[-1] == n - 1
    assert list(kept) == sorted(set(kept))


def test_unknown_scheme_and_zone_fall_back():
    assert palette("pink") is DARK
    assert zone("Not/AZone") is UTC
    assert zone("../../etc/passwd") is UTC
    assert str(zone("Europe/Berlin")) == "Europe/Berlin"
