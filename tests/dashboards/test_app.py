"""Putting the app together: which engine an edit would reach."""

import pytest
from starlette.testclient import TestClient

from collector.views.models import Overview
from dashboards.app import create_app, make_site
from dashboards.feed import Snapshot
from tests.dashboards.factory import empty, full


def address(monkeypatch: pytest.MonkeyPatch, overview: Overview | None, server: str | None = None) -> str | None:
    site = make_site("grpc://127.0.0.1:1", server=server, token=None, readonly=False, local=True, collector_token=None)
    monkeypatch.setattr(site.feed, "any", lambda: Snapshot(1, overview))
    return site.watch._address()


def test_the_stream_names_the_engine(monkeypatch: pytest.MonkeyPatch):
    assert address(monkeypatch, full()) == "http://127.0.0.1:1"


@pytest.mark.parametrize("overview", [None, empty(), full(status="recorded")])
def test_without_a_live_stream_no_engine_is_guessed(monkeypatch: pytest.MonkeyPatch, overview: Overview | None):
    assert address(monkeypatch, overview) is None


def test_a_given_server_goes_first(monkeypatch: pytest.MonkeyPatch):
    assert address(monkeypatch, full(), "http://127.0.0.1:9") == "http://127.0.0.1:9"
    assert address(monkeypatch, full(status="recorded"), "http://127.0.0.1:9") == "http://127.0.0.1:9"


@pytest.mark.parametrize(("local", "asked"), [(True, None), (False, "geheim")])
def test_visitors_are_asked_for_the_token_off_loopback_only(local: bool, asked: str | None):
    app = create_app("grpc://127.0.0.1:1", token="geheim", local=local)
    assert app.server.state.site.page_token == asked


@pytest.mark.parametrize("path", ["/", "/whatif", "/whatif?result=0123456789ab"])
def test_whichever_page_is_opened_first_has_its_scripts(path: str):
    app = create_app("grpc://127.0.0.1:1")
    answer = TestClient(app.server, base_url="http://127.0.0.1").get(path)
    assert answer.status_code == 200 and "/assets/page.js" in answer.text and "content-security-policy" in answer.headers


def test_a_readonly_app_has_no_callback_that_changes_anything():
    editable, readonly = create_app("grpc://127.0.0.1:1"), create_app("grpc://127.0.0.1:1", readonly=True)
    outputs = "".join(str(c["output"]) for c in readonly._callback_list)
    assert "knob-result" in "".join(str(c["output"]) for c in editable._callback_list)
    assert "knob-result" not in outputs
    assert "knob-apply" not in outputs
