"""`pbkv knobs` against the product's own control router."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.main import run
from pbkv.control.client import ControlClient
from tests.console.cli import pbkv, refused
from tests.support.control import ControlServer
from tests.support.ports import free_port

#: Nothing listens here: what is refused locally never notices.
NOWHERE = "http://127.0.0.1:1"

Out = pytest.CaptureFixture[str]


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer() as server:
        yield server


def test_set_prints_the_version_and_the_step_it_took_effect(server: ControlServer) -> None:
    done = pbkv("knobs", "set", "gamma=0.7", "k=2", "--server", server.url, "--reason", "less far")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == [f"version 2, in effect at step {server.backend.set.step}", "gamma  0.8 -> 0.7", "k  3 -> 2"]
    assert server.backend.log[-1]["reason"] == "less far"
    assert "@" in server.backend.log[-1]["actor"]


def test_set_and_get_as_json(server: ControlServer, capsys: Out) -> None:
    assert run(["knobs", "set", "k=5", "--server", server.url, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"version": 2, "step": server.backend.set.step, "changes": [{"name": "k", "old": 3, "new": 5}]}
    assert run(["knobs", "get", "--server", server.url, "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert (got["version"], got["step"], got["knobs"]["k"]["value"]) == (2, answer["step"], 5)
    assert got["knobs"]["k"]["changed"]["step"] == answer["step"]


def test_get_lists_all_knobs_or_those_named(server: ControlServer, capsys: Out) -> None:
    assert run(["knobs", "get", "--server", server.url]) == 0
    out = capsys.readouterr().out
    assert "version 1" in out and all(name in out for name in ("gamma", "k ", "prefetch_budget", "policy"))
    assert run(["knobs", "get", "gamma", "--server", server.url]) == 0
    out = capsys.readouterr().out
    assert "gamma" in out and "prefetch_budget" not in out


def test_history_and_revert(server: ControlServer, capsys: Out) -> None:
    assert run(["knobs", "set", "gamma=0.5", "--server", server.url]) == 0
    assert run(["knobs", "revert", "--server", server.url, "--reason", "worse"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "gamma  0.5 -> 0.8"
    assert run(["knobs", "history", "--server", server.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "revert" in lines[2] and "worse" in lines[2]
    assert run(["knobs", "history", "--server", server.url, "--json"]) == 0
    assert [h["new"] for h in json.loads(capsys.readouterr().out)] == [0.5, 0.8]


def test_a_change_that_expires_goes_back(server: ControlServer, capsys: Out) -> None:
    now = 0.0
    server.backend.clock = lambda: now
    assert run(["knobs", "set", "k=8", "--server", server.url, "--expires", "30"]) == 0
    now = 31.0
    capsys.readouterr()
    assert run(["knobs", "get", "k", "--server", server.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["knobs"]["k"]["value"] == 3


@pytest.mark.parametrize(("args", "words"), [
    (["nope=1"], ["'nope'", "expected one of"]),
    (["gamma=1.5"], ["gamma", "1.5", "from 0 to 1"]),
    (["gamma=abc"], ["gamma", "'abc'"]),
    (["k=0"], ["k = 0", "from 1 to 8"]),
    (["k=2.5"], ["k = '2.5'"]),
    (["k"], ["NAME=VALUE"]),
    (["k=2", "k=3"], ["twice"]),
    (["policy=fifo"], ["policy", "lru"]),
    (["k=2", "--expires", "0"], ["--expires"]),
    (["k=2", "--reason", "x" * 101], ["--reason", "100"]),
    (["k=2", "--token-file", "/nonexistent/token"], ["token file", "No such file"]),
])
def test_bad_input_is_refused_before_any_request(args: list[str], words: list[str], capsys: Out) -> None:
    assert run(["knobs", "set", *args, "--server", NOWHERE]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1
    for word in words:
        assert word in captured.err


@pytest.mark.parametrize("url", ["127.0.0.1:1", "ftp://x", ""])
def test_a_server_that_is_no_url(url: str, capsys: Out) -> None:
    assert run(["knobs", "get", "--server", url]) == 2
    assert "expected http://HOST:PORT" in capsys.readouterr().err


def test_an_unknown_knob_to_get(capsys: Out) -> None:
    assert run(["knobs", "get", "nope", "--server", NOWHERE]) == 2
    assert "no such knob" in capsys.readouterr().err


def test_a_stale_version_exits_2_and_says_who_was_faster(server: ControlServer) -> None:
    ControlClient(server.url, actor="ben@gpu1").set({"gamma": 0.5})
    done = pbkv("knobs", "set", "gamma=0.6", "--server", server.url, "--if-version", "1")
    refused(done, "version 2", "ben@gpu1", "gamma 0.8 -> 0.5")
    assert server.backend.set["gamma"] == 0.5


def test_a_server_that_does_not_answer_exits_1() -> None:
    refused(pbkv("knobs", "get", "--server", f"http://127.0.0.1:{free_port()}"), "does not answer (Connection refused)", status=1)


def test_revert_without_changes(server: ControlServer, capsys: Out) -> None:
    assert run(["knobs", "revert", "--server", server.url]) == 2
    assert "nothing to revert" in capsys.readouterr().err


def test_a_token_is_asked_for_and_taken_from_a_file(tmp_path: Path, capsys: Out) -> None:
    with ControlServer(token="s3cret") as server:
        assert run(["knobs", "get", "--server", server.url]) == 2
        assert "authorization" in capsys.readouterr().err
        file = tmp_path / "token"
        file.write_text("s3cret\n")
        assert run(["knobs", "get", "--server", server.url, "--token-file", str(file)]) == 0
