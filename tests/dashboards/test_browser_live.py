"""The page over a live collector: it moves by itself, survives the collector's death and its own server's."""

import re

import pytest
from playwright.sync_api import expect

from tests.dashboards.conftest import Open, Stack
from tests.dashboards.test_browser_recorded import drawn

pytestmark = pytest.mark.browser


def test_values_change_without_a_reload(open_page: Open, stack: Stack):
    watched = open_page(stack.web.url + "/?window=1m")
    page = watched.page
    expect(page.locator("#badge")).to_have_text("live")
    drawn(page)
    page.evaluate("() => { window.mark = 1; }")
    for locator in (page.locator("#as-of"), page.locator("#server"), page.locator("#hits-summary")):
        expect(locator).not_to_have_text(locator.inner_text())
    expect(page.locator("#verdict")).to_have_text(re.compile(r"^Serving · hit rate \d+ %"))
    assert page.evaluate("() => window.mark") == 1
    assert watched.errors == []
    assert watched.hosts == {f"127.0.0.1:{stack.web.port}"}


def test_a_paused_page_stands_still_and_resumes(open_page: Open, stack: Stack):
    page = open_page(stack.web.url + "/?window=1m").page
    drawn(page)
    page.locator("#pause").click()
    expect(page.locator("#pause")).to_have_text("Resume")
    beat = int(page.locator("#beat").inner_text() or page.locator("#beat").text_content() or 0)
    # Two beats later the pause has reached the server for certain.
    expect(page.locator("#beat")).to_have_text(re.compile(f"^({'|'.join(str(beat + n) for n in range(3, 30))})$"))
    stood = page.locator("#as-of").inner_text()
    later = int(page.locator("#beat").text_content() or 0)
    expect(page.locator("#beat")).to_have_text(re.compile(f"^({'|'.join(str(later + n) for n in range(4, 40))})$"))
    assert page.locator("#as-of").inner_text() == stood
    page.locator("#pause").click()
    expect(page.locator("#as-of")).not_to_have_text(stood)


def test_two_pages_and_one_closed(open_page: Open, stack: Stack):
    first, second = open_page(stack.web.url), open_page(stack.web.url + "/?window=1m")
    drawn(first.page)
    drawn(second.page)
    tab = first.page.context.new_page()
    tab.goto(stack.web.url)
    drawn(tab)
    second.page.close()
    tab.close()
    before = first.page.locator("#as-of").inner_text()
    expect(first.page.locator("#as-of")).not_to_have_text(before)
    assert first.errors == []


def test_the_collector_dies_and_comes_back(open_page: Open, stack: Stack):
    watched = open_page(stack.web.url + "/?window=1m")
    page = watched.page
    drawn(page)
    page.evaluate("() => { window.mark = 1; }")
    stack.collector.kill()
    expect(page.locator("#badge")).to_have_text("collector unreachable")
    banner = page.locator("#banner .banner")
    expect(banner).to_contain_text("Collector unreachable for")
    expect(banner).to_contain_text("pbkv collect")
    expect(page.locator("#device-graph .main-svg").first).to_be_visible()
    expect(page.locator("#tile-hit")).to_have_text(re.compile(r"\d+ %"))
    stack.collector.start()
    expect(page.locator("#badge")).to_have_text("live")
    expect(banner).to_have_count(0)
    stood = page.locator("#as-of").inner_text()
    expect(page.locator("#as-of")).not_to_have_text(stood)
    assert page.evaluate("() => window.mark") == 1
    assert watched.errors == []


def test_the_web_server_dies_and_comes_back(open_page: Open, stack: Stack):
    page = open_page(stack.web.url + "/?window=1m").page
    drawn(page)
    stack.web.kill()
    expect(page.locator(".banner.offline")).to_be_visible()
    expect(page.locator(".banner.offline")).to_contain_text("lost its web server")
    stack.web.start()
    expect(page.locator(".banner.offline")).to_be_hidden()
    expect(page.locator("#badge")).to_have_text("live")
    stood = page.locator("#as-of").inner_text()
    expect(page.locator("#as-of")).not_to_have_text(stood)


def test_the_producer_falls_silent(open_page: Open, stack: Stack):
    page = open_page(stack.web.url + "/?window=1m").page
    drawn(page)
    stack.producer.stop()
    expect(page.locator("#badge")).to_have_text(re.compile(r"^stale · \d+ s$"))
    expect(page.locator("#banner .banner")).to_contain_text("No events for")
    expect(page.locator("#verdict")).to_have_text(re.compile("^Silent for"))
