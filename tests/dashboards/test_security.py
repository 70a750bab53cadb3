"""Hosts, origins, headers: the guard alone and in front of the real app."""

from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from dashboards.app import create_app
from dashboards.security import Guard, is_loopback, policy
from tests.support.stream import fill


def client(local: bool = True) -> TestClient:
    app = FastAPI()

    @app.get("/")
    def get() -> str:
        return "ok"

    @app.post("/")
    def post() -> str:
        return "changed"

    @app.websocket("/ws")
    async def ws(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    app.add_middleware(Guard, local=local, csp=policy(["'sha256-x'"]))
    return TestClient(app, base_url="http://127.0.0.1:8050")


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", False),
        ("192.168.1.5", False),
        ("gpu-7", False),
        ("", False),
    ],
)
def test_is_loopback(host: str, answer: bool):
    assert is_loopback(host) is answer


@pytest.mark.parametrize("host", ["127.0.0.1:8050", "localhost:8050", "localhost", "[::1]:8050", "LOCALHOST:1"])
def test_loopback_names_are_answered(host: str):
    assert client().get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example:8050", "127.0.0.1.evil.example", "", "localhost.evil.example", "[::1", "user@evil"])
def test_a_rebound_name_gets_nothing(host: str):
    answer = client().get("/", headers={"host": host})
    assert answer.status_code == 403
    assert "localhost" in answer.text


def test_off_loopback_any_name_may_be_used():
    assert client(local=False).get("/", headers={"host": "gpu-7:8050"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:8050"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://[bad"}, 403),
    ],
)
@pytest.mark.parametrize("local", [True, False])
def test_a_change_must_come_from_the_page(headers: dict[str, str], status: int, local: bool):
    assert client(local).post("/", headers=headers).status_code == status


def test_reading_needs_no_origin():
    assert client().get("/", headers={"origin": "http://evil.example", "sec-fetch-site": "cross-site"}).status_code == 200


def test_a_foreign_socket_is_refused():
    with pytest.raises(WebSocketDisconnect) as refused, client().websocket_connect("/ws", headers={"origin": "http://evil.example"}):
        pass
    assert refused.value.code == 4003
    with client().websocket_connect("/ws", headers={"host": "127.0.0.1:8050", "origin": "http://127.0.0.1:8050"}) as socket:
        assert socket.receive_text() == "hello"


def test_every_answer_carries_the_headers():
    for answer in (client().get("/"), client().get("/", headers={"host": "evil"}), client().get("/nothing")):
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_the_policy_allows_no_foreign_and_no_inline_script():
    script = next(part for part in policy(["'sha256-abc'"]).split("; ") if part.startswith("script-src"))
    assert script == "script-src 'self' 'sha256-abc'"


@pytest.fixture(scope="module")
def app_client(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("app") / "a.duckdb"
    fill(path, 30, 1)
    app = create_app(str(path))
    site = app.server.state.site
    site.start()
    try:
        yield TestClient(app.server, base_url="http://127.0.0.1:8050")
    finally:
        site.stop()


def test_the_page_names_no_other_host(app_client: TestClient):
    answer = app_client.get("/")
    assert answer.status_code == 200
    body = answer.text.split('<script id="_dash-config"')[0] + answer.text.split("</script>", 1)[1]
    assert "http://" not in body
    assert "https://" not in body


def test_the_layout_is_served(app_client: TestClient):
    assert app_client.get("/_dash-layout").status_code == 200


def test_callbacks_are_guarded(app_client: TestClient):
    answer = app_client.post("/_dash-update-component", json={}, headers={"origin": "http://evil.example"})
    assert answer.status_code == 403


@pytest.mark.parametrize("name", ["device", "hits", "workflows", "changes"])
def test_csv_is_served(app_client: TestClient, name: str):
    answer = app_client.get(f"/csv/{name}.csv?window=1h")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.text.count("\r\n") >= 2


def test_an_unknown_table_is_named(app_client: TestClient):
    answer = app_client.get("/csv/passwords.csv")
    assert answer.status_code == 404
    assert "expected one of device, host, hits" in answer.text


def test_health(app_client: TestClient):
    assert app_client.get("/healthz").text == "ok\n"


def test_a_source_that_cannot_be_read_has_no_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    app = create_app("grpc://127.0.0.1:1")
    site = app.server.state.site
    monkeypatch.setattr(type(site.feed), "read_now", lambda self, window: self.want(window))
    answer = TestClient(app.server, base_url="http://127.0.0.1:8050").get("/csv/device.csv")
    assert answer.status_code == 503
    assert "grpc://127.0.0.1:1" in answer.text
