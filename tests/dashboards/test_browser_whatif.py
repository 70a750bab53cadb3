"""Forecasts and grids in a real browser, over a store with a run of the embedded engine and a real control server."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from collector.store import Store
from pbkv.control.client import ControlClient
from tests.dashboards.conftest import Open
from tests.dashboards.processes import WebServer
from tests.dashboards.test_browser_knobs import stage
from tests.support.control import ControlServer
from tests.support.played import played

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def control() -> Iterator[ControlServer]:
    with ControlServer() as server:
        yield server


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(tmp_path_factory.mktemp("played") / "played.duckdb", workflows=10)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"PBKV_STATE_DIR": str(tmp_path_factory.mktemp("state"))}


@pytest.fixture(scope="module")
def web(log: Path, control: ControlServer, state: dict[str, str]) -> Iterator[WebServer]:
    with WebServer(str(log), "--server", control.url, env=state) as server:
        yield server


def fill(page: Page, **texts: str) -> None:
    """The form, all lines of it."""
    for box in page.locator("input[id*='wi-field']").all():
        name = re.search(r'"field":"(\w+)"', box.get_attribute("id") or "")
        if name is not None:
            box.fill(texts.get(name[1], ""))


def run(page: Page, **texts: str) -> None:
    fill(page, **texts)
    page.locator("#wi-run").click()


def test_what_is_staged_is_forecast_beside_the_present(open_page: Open, web: WebServer, control: ControlServer):
    watched = open_page(web.url)
    page = watched.page
    expect(page.locator("#knob-forecast")).to_have_text("")
    stage(page, "gamma", "0.3")
    table = page.locator("#knob-forecast .forecast-table")
    expect(table).to_contain_text("hit rate")
    for words in ("TTFT p95", "bytes moved", "present", "forecast"):
        expect(table).to_contain_text(words)
    expect(table.locator(".better, .worse, .same")).to_have_count(3)
    expect(page.locator("#knob-forecast")).to_contain_text(re.compile(r"Forecast of the last .* calls"))
    stage(page, "gamma", "7")
    expect(page.locator("#knob-forecast")).to_have_text("")
    page.locator("#knob-discard").click()
    stage(page, "retire_idle_s", "300")
    expect(page.locator("#knob-forecast")).to_have_text("No forecast: retire_idle_s is no part of one.")
    page.locator("#knob-discard").click()
    expect(page.locator("#knob-forecast")).to_have_text("")
    assert control.backend.set.version == 1
    assert watched.errors == [] and watched.hosts == {f"127.0.0.1:{web.port}"}


def test_a_grid_from_the_form_to_its_link_and_into_the_knob_form(open_page: Open, web: WebServer, control: ControlServer):
    watched = open_page(web.url)
    page = watched.page
    page.locator("#to-whatif").click()
    expect(page).to_have_url(f"{web.url}/whatif")
    expect(page.locator("#wi-none")).to_contain_text("Run a grid")
    run(page, policy="lru,he", gamma="0.5,1", k="2,3", last="24h", under="ttft_p95<10m", best="moved_bytes")
    expect(page.locator("#wi-note")).to_have_text(re.compile(r"^5 of 5 settings in .* s, kept as [0-9a-f]{12}\.$"))
    expect(page).to_have_url(re.compile(r"/whatif\?result=[0-9a-f]{12}$"))
    expect(page.locator("#wi-best")).to_contain_text("Best bytes moved under ttft_p95<10m: ★ ")
    expect(page.locator("#wi-summary")).to_have_text("5 settings")
    expect(page.locator("#wi-graph .scatterlayer .trace")).to_have_count(3)
    page.locator("#wi-picture-kind >> text=map").click()
    expect(page.locator("#wi-graph .heatmaplayer")).to_have_count(1)
    expect(page.locator("#wi-graph")).to_contain_text("%")
    link = page.url
    other = open_page(link).page
    expect(other.locator("#wi-best")).to_have_text(page.locator("#wi-best").text_content() or "")
    expect(other.locator("input[id*='wi-field'][id*='gamma']")).to_have_value("0.5,1")
    expect(other.locator(".wi-link.current code")).to_have_text(link[-12:])
    page.locator("#wi-grid .ag-row", has_text="lru").first.click()
    page.locator("#wi-stage").click()
    expect(page).to_have_url(re.compile(re.escape(web.url) + r"/(\?.*)?$"))
    expect(page.locator("#knob-staged")).to_contain_text("policy he → lru")
    expect(page.locator("#knob-forecast .forecast-table")).to_be_visible()
    assert control.backend.set.version == 1
    page.locator("#knob-discard").click()
    assert watched.errors == [] and watched.hosts == {f"127.0.0.1:{web.port}"}


def test_what_a_form_refuses_and_what_a_link_leads_to_nothing(open_page: Open, web: WebServer):
    page = open_page(f"{web.url}/whatif?result=0123456789ab").page
    expect(page.locator("#wi-none")).to_contain_text("result 0123456789ab: not kept here")
    run(page, gamma="2")
    expect(page.locator("#wi-note")).to_have_text(re.compile("^gamma '2': expected numbers from 0 to 1"))
    run(page, gamma="0.5", under="speed<1")
    expect(page.locator("#wi-note")).to_contain_text("under 'speed<1': expected FIGURE<VALUE")
    run(page)
    expect(page.locator("#wi-note")).to_contain_text("the grid has no axis")
    expect(page.locator("#wi-note")).to_have_class("wi-note bad")


def test_two_operators_run_grids_at_once_and_one_stops(open_page: Open, web: WebServer):
    ana, bob = open_page(f"{web.url}/whatif").page, open_page(f"{web.url}/whatif").page
    run(ana, policy="he", gamma="0:1:0.005", k="3,5,7", last="24h")
    expect(ana.locator("#wi-note")).to_contain_text("of 603 settings")
    run(bob, policy="lru", last="24h")
    expect(bob.locator("#wi-note")).to_contain_text("Waiting for 1 other grid")
    ana.locator("#wi-stop").click()
    expect(ana.locator("#wi-note")).to_contain_text(re.compile(r"of 603 settings stopped, kept as|stopped before the first"))
    expect(bob.locator("#wi-note")).to_contain_text("1 of 1 settings in")
    expect(bob.locator("#wi-stop")).to_be_disabled()


def test_a_page_that_is_left_gives_its_place_to_the_next(open_page: Open, web: WebServer):
    ana, bob = open_page(f"{web.url}/whatif").page, open_page(f"{web.url}/whatif").page
    run(ana, policy="he", gamma="0:1:0.002", k="3,5,7", last="24h")
    expect(ana.locator("#wi-note")).to_contain_text("of 1,503 settings")
    ana.close()
    run(bob, policy="lae", last="24h")
    expect(bob.locator("#wi-note")).to_contain_text("1 of 1 settings in", timeout=240_000)


def test_a_readonly_page_forecasts_and_stages_nothing(open_page: Open, log: Path, control: ControlServer, state: dict[str, str]):
    with WebServer(str(log), "--server", control.url, "--readonly", env=state) as readonly:
        page = open_page(f"{readonly.url}/whatif").page
        run(page, policy="lru", last="24h")
        expect(page.locator("#wi-note")).to_contain_text("kept as")
        assert page.locator("#wi-stage").count() == 0 and page.locator("#knob-forecast").count() == 0
    assert ControlClient(control.url).knobs()["version"] == 1


@pytest.mark.parametrize("width", [1440, 800])
def test_the_page_in_both_themes_has_no_empty_tail(open_page: Open, web: WebServer, width: int):
    page = open_page(f"{web.url}/whatif", width=width).page
    expect(page.locator("#wi-run")).to_be_visible()
    expect(page.locator("#whatif-view")).to_have_class("view")
    for label in ("Light theme", "Dark theme"):
        expect(page.locator("#scheme")).to_have_text(label)
        height, bottom, width_ = page.evaluate(
            "() => [Math.max(document.documentElement.scrollHeight - window.innerHeight, 0) + window.innerHeight, "
            "document.querySelector('#whatif-view').getBoundingClientRect().bottom, document.documentElement.scrollWidth]"
        )
        assert height <= max(bottom + 120, 900) and width_ <= width
        page.locator("#scheme").click()


def test_a_log_that_cannot_be_replayed_says_why(open_page: Open, tmp_path: Path, control: ControlServer, state: dict[str, str]):
    Store(tmp_path / "empty.duckdb").close()
    with WebServer(str(tmp_path / "empty.duckdb"), "--server", control.url, env=state) as web:
        page = open_page(web.url).page
        stage(page, "gamma", "0.3")
        expect(page.locator("#knob-forecast .forecast-note.bad")).to_contain_text("No forecast: the log has no calls in this window")
