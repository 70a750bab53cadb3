"""The client and the tuning flow against the real router: what a person reads when something is wrong."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from pbkv.control.client import ControlClient, parse_assignments, read_token
from pbkv.control.tuning import apply_change, load_knobs, revert_change
from pbkv.errors import PbkvError, StaleVersion, Unreachable, UsageError
from tests.support.control import ControlServer
from tests.support.ports import free_port


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer() as server:
        yield server


def test_set_reads_the_version_itself_when_none_is_named(server: ControlServer) -> None:
    client = ControlClient(server.url, actor="ana")
    assert client.set({"k": 2})["version"] == 2
    assert client.set({"k": 4})["version"] == 3
    assert client.history()[-1]["actor"] == "ana"


def test_revert_undoes_the_newest_set_of_changes_together(server: ControlServer) -> None:
    client = ControlClient(server.url)
    client.set({"k": 2, "gamma": 0.5})
    client.set({"k": 7, "policy": "lru"})
    applied = revert_change(client)
    assert sorted(applied.changes) == [("k", 7, 2), ("policy", "lru", "he")]
    assert client.history()[-1]["source"] == "revert"
    assert server.backend.set["gamma"] == 0.5


def test_revert_without_a_change_says_so(server: ControlServer) -> None:
    with pytest.raises(UsageError, match="nothing to revert"):
        revert_change(ControlClient(server.url))


def test_a_stale_change_names_who_was_faster(server: ControlServer) -> None:
    ControlClient(server.url, actor="ben").set({"gamma": 0.7})
    with pytest.raises(StaleVersion) as error:
        apply_change(ControlClient(server.url, actor="ana"), {"gamma": 0.6}, if_version=1)
    assert "the knobs are at version 2" in str(error.value)
    assert "version 2 was set by ben: gamma 0.8 -> 0.7" in str(error.value)


def test_knob_states_carry_the_newest_change_of_each_knob(server: ControlServer) -> None:
    client = ControlClient(server.url, actor="ana")
    client.set({"gamma": 0.7})
    client.set({"gamma": 0.6}, reason="lower")
    states = load_knobs(client)
    gamma, k = states.find("gamma"), states.find("k")
    assert gamma.changed is not None
    assert (states.version, gamma.value, gamma.changed.version, gamma.changed.old, gamma.changed.reason) == (3, 0.6, 3, 0.7, "lower")
    assert gamma.changed.step == states.step
    assert k.changed is None and k.expected.startswith("a whole number from 1 to 8")


def test_unchanged_knobs_are_not_read_twice(server: ControlServer) -> None:
    client = ControlClient(server.url)
    first = load_knobs(client)
    assert load_knobs(client, first) is first
    client.set({"k": 2})
    assert load_knobs(client, first) is not first


def test_a_restarted_server_with_the_same_version_is_noticed(server: ControlServer) -> None:
    first = load_knobs(ControlClient(server.url))
    server.backend.set.values["k"] = 6
    assert load_knobs(ControlClient(server.url), first).find("k").value == 6


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(Unreachable) as error:
        ControlClient(f"http://127.0.0.1:{free_port()}").knobs()
    assert "does not answer (Connection refused)" in str(error.value)


class _Foreign(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"<html>not here</html>")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_server_without_the_plugin() -> None:
    foreign = HTTPServer(("127.0.0.1", 0), _Foreign)
    thread = Thread(target=foreign.serve_forever, daemon=True)
    thread.start()
    try:
        with pytest.raises(PbkvError, match="answered 404; is this a server with the pbkv plugin"):
            ControlClient(f"http://127.0.0.1:{foreign.server_port}").knobs()
    finally:
        foreign.shutdown()
        foreign.server_close()


def test_token_from_file_from_environment_and_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    with ControlServer(token="s3cret") as server:
        assert ControlClient(server.url, token=read_token(str(file))).knobs()["version"] == 1
        with pytest.raises(UsageError, match="authorization"):
            ControlClient(server.url).knobs()
        with pytest.raises(UsageError, match="not this server's"):
            ControlClient(server.url, token="other").knobs()
        monkeypatch.setenv("PBKV_TOKEN", "s3cret")
        assert ControlClient(server.url).knobs()["version"] == 1


def test_a_token_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert read_token(None) is None
    with pytest.raises(UsageError, match="No such file"):
        read_token(str(tmp_path / "none"))


@pytest.mark.parametrize(("given", "words"), [
    (["gamma"], "expected NAME=VALUE"), (["nope=1"], "no such knob"), (["gamma=1.5"], "from 0 to 1"), (["k=0"], "from 1 to 8"),
    (["k=2", "k=3"], "named twice"), (["policy=fifo"], "one of lru"), (["=1"], "no such knob"), (["gamma="], "expected a number"),
])
def test_assignments_are_checked_before_any_request(given: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_assignments(given)


def test_assignments_become_typed_values() -> None:
    assert parse_assignments(["gamma=0.5", "k=2", "policy=lru"]) == {"gamma": 0.5, "k": 2, "policy": "lru"}
