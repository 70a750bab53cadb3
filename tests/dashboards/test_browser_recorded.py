"""The page over a recording, in a real browser."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboards.palette import DARK, LIGHT
from dashboards.panels import board
from tests.dashboards.conftest import Open
from tests.dashboards.processes import WebServer

pytestmark = pytest.mark.browser


def drawn(page: Page) -> None:
    """Until all panels and grids have their data."""
    for panel in board.PANELS:
        expect(page.locator(f"#{panel.name}-graph .main-svg").first).to_be_visible()
    expect(page.locator("#workflows-grid .ag-row").first).to_be_visible()
    expect(page.locator("#changes-grid .ag-row").first).to_be_visible()


def test_all_panels_have_data_and_nothing_leaves_the_machine(open_page: Open, recorded: WebServer):
    watched = open_page(recorded.url + "/?window=1h")
    page = watched.page
    drawn(page)
    expect(page.locator("#badge")).to_have_text("recorded")
    expect(page.locator("#verdict")).to_have_text(
        re.compile(r"^Recording · hit rate \d+ % \(device \d+ %, host \d+ %\) · predictor right .* · 0 messages lost$")
    )
    expect(page.locator("#server")).to_contain_text("synthetic-0")
    for tile in ("hit", "ttft", "predictor", "retired", "linkuse", "load"):
        expect(page.locator(f"#tile-{tile}")).to_have_text(re.compile(r"\d"))
    expect(page.locator("#device-graph .scatterlayer .trace")).to_have_count(5)
    assert page.locator("#evictions-graph .bars .point").count() > 2
    assert page.locator("#hits-graph .shapelayer path").count() > 3
    assert watched.errors == []
    assert watched.hosts == {f"127.0.0.1:{recorded.port}"}


def test_knobs_of_a_recording_are_its_last_values(open_page: Open, recorded: WebServer):
    page = open_page(recorded.url).page
    expect(page.locator("#knob-note")).to_contain_text("A recording")
    expect(page.locator("#knob-past .knob-row").first).to_contain_text("gamma")
    expect(page.locator("#knob-footer")).to_be_hidden()


def test_the_window_lives_in_the_url(open_page: Open, recorded: WebServer):
    page = open_page(recorded.url + "/?window=1m").page
    expect(page.locator("#window input[value='1m']")).to_be_checked()
    expect(page.locator("#hits-summary")).to_contain_text("calls")
    short = page.locator("#hits-summary").inner_text()
    page.locator("#window label", has_text="15 min").click()
    expect(page).to_have_url(re.compile(r"\?window=15m$"))
    expect(page.locator("#hits-summary")).not_to_have_text(short)
    page.reload()
    expect(page.locator("#window input[value='15m']")).to_be_checked()
    page.go_back()
    expect(page.locator("#window input[value='1m']")).to_be_checked()


def test_a_window_nobody_knows_is_the_default(open_page: Open, recorded: WebServer):
    page = open_page(recorded.url + "/?window=%3Cscript%3E").page
    expect(page.locator("#window input[value='5m']")).to_be_checked()
    expect(page.locator("#badge")).to_have_text("recorded")


def test_csv_has_the_window_of_the_page(open_page: Open, recorded: WebServer, tmp_path: Path):
    page = open_page(recorded.url + "/?window=1m").page
    drawn(page)
    lengths = []
    for window in (None, "1 h"):
        if window:
            page.locator("#window label", has_text=window).click()
            expect(page).to_have_url(re.compile("window=1h"))
        with page.expect_download() as download:
            page.locator("#device-csv").click()
        path = tmp_path / "device.csv"
        download.value.save_as(path)
        assert download.value.suggested_filename == "pbkv-device.csv"
        lengths.append(path.read_text().splitlines())
    assert lengths[0][0] == "time_utc,device_locked,device_active,device_retired,device_free"
    assert len(lengths[0]) > 2
    assert lengths[0][1] != lengths[1][1]


def background(page: Page) -> str:
    return str(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))


def rgb(color: str) -> str:
    return "rgb({}, {}, {})".format(*(int(color[i : i + 2], 16) for i in (1, 3, 5)))


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768)])
def test_both_themes(open_page: Open, recorded: WebServer, tmp_path: Path, width: int, height: int):
    watched = open_page(recorded.url, width, height)
    page = watched.page
    drawn(page)
    assert background(page) == rgb(DARK.page)
    dark = page.screenshot(path=tmp_path / "dark.png")
    page.locator("#scheme").click()
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", "light")
    expect(page.locator("html")).to_have_attribute("data-ag-theme-mode", "light")
    expect(page.locator(f"#device-graph .scatterlayer path[style*='{rgb(LIGHT.active)}']").first).to_be_attached()
    assert background(page) == rgb(LIGHT.page)
    light = page.screenshot(path=tmp_path / "light.png")
    assert dark != light
    page.reload()
    expect(page.locator("#scheme")).to_have_text("Dark theme")
    drawn(page)
    assert watched.errors == []


@pytest.mark.parametrize("width", [1440, 1024, 700])
def test_nothing_overflows_or_overlaps(open_page: Open, recorded: WebServer, width: int):
    page = open_page(recorded.url, width, 900).page
    drawn(page)
    wide = page.evaluate("() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1]
    boxes = [box for p in page.locator(".panel, .tile").all() if (box := p.bounding_box())]
    assert len(boxes) >= 16
    for n, a in enumerate(boxes):
        for b in boxes[n + 1 :]:
            apart = a["x"] + a["width"] <= b["x"] + 1 or b["x"] + b["width"] <= a["x"] + 1
            assert apart or a["y"] + a["height"] <= b["y"] + 1 or b["y"] + b["height"] <= a["y"] + 1
    cut = page.evaluate(
        "() => [...document.querySelectorAll('.legend, .panel-title, .tile-value')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    )
    assert cut == 0


def test_times_are_in_the_viewers_zone(open_page: Open, recorded: WebServer):
    page = open_page(recorded.url, zone="Asia/Tokyo").page
    expect(page.locator("#as-of")).to_have_text(re.compile(r"as of 2026-01-01 21:06:0\d JST"))


def test_controls_have_names_for_screen_readers(open_page: Open, recorded: WebServer):
    page = open_page(recorded.url).page
    drawn(page)
    expect(page.get_by_role("group", name="Time window of all panels")).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.get_by_role("heading", name="Hit rate")).to_be_visible()
    assert page.get_by_role("link", name="CSV").count() == len(board.TABLES)


def test_a_foreign_page_cannot_frame_it(open_page: Open, recorded: WebServer):
    watched = open_page(recorded.url + "/healthz")
    watched.page.set_content(f'<iframe src="{recorded.url}"></iframe>')
    watched.page.wait_for_timeout(0)
    frame = watched.page.frames[-1]
    frame.wait_for_load_state()
    assert frame.locator("#verdict").count() == 0
