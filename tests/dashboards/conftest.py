"""A real Chromium for the page tests, a page that watches itself, and a live stack of real processes."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.dashboards.processes import Collector, WebServer
from tests.support.control import ControlServer
from tests.support.stream import LiveProducer, fill

CHROMIUM = Path("/usr/bin/chromium")
ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: Everything else on the machine runs at the same time.
DEADLINE_MS = 60_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, headless. Without it the tests are skipped, in CI they fail."""
    if not CHROMIUM.exists():
        message = f"{CHROMIUM} is missing; install it with: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGS))
        yield running
        running.close()


@dataclass
class Watched:
    """A page with what it printed to its console and every host it asked for something."""

    page: Page
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def on_request(self, request: Request) -> None:
        if request.url.startswith(("http", "ws")):
            self.hosts.add(urlsplit(request.url).netloc)


Open = Callable[..., Watched]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a URL in a fresh context; more calls are more operators, each with their own browser storage."""
    contexts = []

    def opener(url: str, width: int = 1440, height: int = 900, zone: str = "UTC") -> Watched:
        context = browser.new_context(viewport={"width": width, "height": height}, timezone_id=zone)
        context.set_default_timeout(DEADLINE_MS)
        contexts.append(context)
        watched = Watched(context.new_page())
        watched.page.on("console", watched.on_console)
        watched.page.on("pageerror", lambda error: watched.errors.append(str(error)))
        watched.page.on("request", watched.on_request)
        watched.page.goto(url)
        return watched

    yield opener
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six minutes of a busy server, as a file."""
    path = tmp_path_factory.mktemp("recording") / "day.duckdb"
    fill(path, 360, 1)
    return path


@pytest.fixture(scope="session")
def recorded(recording: Path) -> Iterator[WebServer]:
    """The page over the recording."""
    with WebServer(str(recording)) as web:
        yield web


@dataclass
class Stack:
    """A producer, a collector that can be killed, a control server and the page over them."""

    producer: LiveProducer
    collector: Collector
    control: ControlServer
    web: WebServer


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("live")
    env = {"PBKV_STATE_DIR": str(folder / "state")}
    with (
        ControlServer() as control,
        LiveProducer(control_url=control.url) as producer,
        Collector(producer.endpoint, producer.replay_endpoint, folder / "live.duckdb", env) as collector,
        WebServer(collector.source, env=env) as web,
    ):
        yield Stack(producer, collector, control, web)
