"""Training rows of an embedded engine: who called in which order, to whoever comes for them."""

import json
from pathlib import Path
from typing import Any

from console.main import run
from pbkv.workloads.adapters.recording import load_recording
from tests.support.embedded import EmbeddedServer


def ask(server: EmbeddedServer, epoch: int = 0, after: int = 0) -> dict[str, Any]:
    answer = server.call("POST", "/pbkv/record", {"epoch": epoch, "after": after})
    assert answer.status_code == 200, answer.text
    return answer.json()


def play(server: EmbeddedServer, name: str, agents: str) -> None:
    for n, agent in enumerate(agents):
        pbkv = {"workflow": name, "agent": agent, "final": n == len(agents) - 1}
        server.chat(f"task of {name} " * 4, n=6, custom_params={"pbkv": pbkv})


def test_rows_begin_with_the_first_question(server: EmbeddedServer) -> None:
    play(server, "before", "ab")
    first = ask(server)
    assert first["rows"] == [] and first["signal"] == "" and not first["more"]
    play(server, "after", "abc")
    rows = ask(server, first["epoch"])["rows"]
    calls = [row for row in rows if "agent" in row]
    assert [(row["workflow"], row["step"], row["agent"], row["output_tokens"]) for row in calls] == [
        ("after", step, agent, 6) for step, agent in enumerate("abc")
    ]
    assert all(row["prompt"] is row["reply"] is None for row in calls)
    assert [row["end"] for row in rows if "end" in row] == ["final"]
    assert ask(server, first["epoch"], rows[-1]["n"])["rows"] == []


def test_a_bad_question_is_refused(server: EmbeddedServer) -> None:
    for body, words in (({"after": -1}, "after"), ({"epoch": "1"}, "epoch"), ({"surprise": 1}, "surprise"), ({"after": 2**63}, "after")):
        answer = server.call("POST", "/pbkv/record", body)
        assert answer.status_code == 422 and words in answer.json()["error"]


def test_a_recording_of_an_embedded_engine_can_be_trained_on(server: EmbeddedServer, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    assert run(["train", "--record", server.url, "-o", str(file), "--seconds", "0.1"]) == 0
    for n in range(16):
        play(server, f"run {n}", "abc" if n % 2 else "ac")
    assert run(["train", "--record", server.url, "-o", str(file), "--seconds", "0.1"]) == 0
    runs = [item for item in load_recording(file).runs if item.name.startswith("run ")]
    assert [item.agents for item in runs] == [tuple("abc" if n % 2 else "ac") for n in range(16)]
    assert run(["train", str(file), "-o", str(tmp_path / "p"), "--predictor", "markov"]) == 0
    assert "signal" not in json.loads((tmp_path / "p" / "config.json").read_text())
