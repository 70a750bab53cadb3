"""A predictor's whole way on real servers: rows recorded from one, trained on, and served by two ranks that must agree at every step."""

import base64
import json
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from console.main import run
from pbkv.predictor.signal import projection, quantised
from pbkv.sglang.meters import COUNTERS, GAUGES
from tests.server.test_same_answers import play, workload
from tests.support.server import Events, Server, running_server, wait_for

pytestmark = pytest.mark.server

RUNS = ["abc", "abbc"] * 12
#: Calls of all runs and of the probe.
CALLS = sum(map(len, RUNS)) + 1
LAST = ("--return-hidden-states-mode", "last")


def chain(server: Server, name: str, seed: int, agents: str) -> None:
    """One run: each agent's prompt goes on from the one before it."""
    prompt = [(seed * 31 + n) % 250 for n in range(150)]
    for step, agent in enumerate(agents):
        pbkv = {"workflow": name, "agent": agent, "final": step == len(agents) - 1}
        prompt += server.generate(prompt, 4, sampling={"custom_params": {"pbkv": pbkv}})["output_ids"]
        prompt += [ord(agent) % 250] * 40


def metrics(server: Server) -> dict[str, float]:
    """PBKV's own families, series added up."""
    found: dict[str, float] = defaultdict(float)
    for line in server.call("GET", "/metrics").text.splitlines():
        if line.startswith("pbkv:"):
            found[line.partition("{")[0]] += float(line.rpartition(" ")[2])
    return found


@dataclass
class Recorded:
    """What came of the first server."""

    file: Path
    predictor: Path
    prompt: np.ndarray  # signal of the last prompt token, as recorded
    states: list[Any]  # the same request's hidden state, as SGLang itself returned it
    metrics: dict[str, float]


@pytest.fixture(scope="module")
def recorded(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A server without a predictor, chunked so that prompts take several turns; a recording of it, and a network trained on that."""
    folder = tmp_path_factory.mktemp("recorded")
    file, predictor = folder / "rows.jsonl", folder / "predictor"
    options: dict[str, Any] = {"max_total_tokens": 3072, "hicache_ratio": 4, "chunked_prefill_size": 64, "extra": LAST}
    with running_server(tiny_model, config={"server": "recorded"}, **options) as server:
        assert run(["train", "--record", server.url, "-o", str(file), "--seconds", "0.1"]) == 0  # from here on rows are kept
        probe = {"pbkv": {"workflow": "probe", "agent": "p", "final": True}}
        ask = {"model": "m", "prompt": list(range(7, 140)), "max_tokens": 1, "temperature": 0, "return_hidden_states": "last"}
        answer = server.call("POST", "/v1/completions", {**ask, "custom_params": probe}).json()
        for n, agents in enumerate(RUNS):
            chain(server, f"run {n}", n, agents)
        assert run(["train", "--record", server.url, "-o", str(file), "--seconds", "0.1"]) == 0
        wait_for(lambda: metrics(server)["pbkv:calls_total"] >= CALLS)
        told = metrics(server)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    probe_row = next(row for row in rows if row.get("workflow") == "probe")
    signal = np.frombuffer(base64.b64decode(probe_row["prompt"]), np.int8)
    assert run(["train", str(file), "-o", str(predictor), "--epochs", "3"]) == 0
    return Recorded(file, predictor, signal, answer["choices"][0]["hidden_states"], told)


def test_the_signal_is_the_projected_state_of_the_last_prompt_token(recorded: Recorded) -> None:
    """Of the last chunk and not of one before it: SGLang's own answer to the same request says what it is."""
    state = np.array(recorded.states, np.float32).reshape(-1, 64)[0]
    wanted = quantised(state @ projection(64).astype(np.float32))
    assert wanted is not None
    assert np.abs(wanted.astype(int) - recorded.prompt).max() <= 1


def test_the_recording_holds_whole_runs_and_no_text(recorded: Recorded) -> None:
    rows = [json.loads(line) for line in recorded.file.read_text().splitlines()]
    assert rows[0]["signal"] == "hidden qwen3 2x64"
    calls = [row for row in rows if "agent" in row]
    assert len(calls) == CALLS and all(row["prompt"] and row["reply"] for row in calls)
    assert {key for row in rows for key in row} == {
        "pbkv_record", "epoch", "signal", "after", "n", "w", "workflow", "step", "agent", "output_tokens", "prompt", "reply", "end",
    }


def test_what_was_trained_says_what_it_was_trained_on(recorded: Recorded) -> None:
    config = json.loads((recorded.predictor / "config.json").read_text())
    assert (config["signal"], config["text_dim"], sorted(config["agents"])) == ("hidden qwen3 2x64", 128, ["a", "b", "c", "p"])
    assert sum(config["runs"]) == 25


def test_metrics_have_the_plugins_own_counters(recorded: Recorded) -> None:
    told = recorded.metrics
    assert set(told) == {f"{name}_total" for name, _, _ in COUNTERS} | {name for name, _ in GAUGES}
    assert told["pbkv:predictions_total"] >= CALLS and told["pbkv:retired_workflows_total"] == 25
    assert told["pbkv:evicted_tokens_total"] > 0 and told["pbkv:armed"] == 1 and told["pbkv:faults_total"] == 0


def test_two_ranks_agree_on_what_one_predicted(tiny_model: Path, recorded: Recorded) -> None:
    """Under SGLang's consensus checker, which ends the server at the first difference; with a budget that the busy machine overruns."""
    config = {"server": "tp2", "predictor": str(recorded.predictor), "predict_budget_ms": 0.5}
    options: dict[str, Any] = {"max_total_tokens": 3072, "hicache_ratio": 4, "chunked_prefill_size": 128, "tp": 2, "extra": LAST}
    with running_server(tiny_model, config=config, env={"SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1"}, **options) as server:
        events = Events(server.state()["events"])
        lanes = [threading.Thread(target=play, args=(server, workload(20 + n, 2, 3, context=200))) for n in range(3)]
        lanes += [threading.Thread(target=chain, args=(server, f"chain {n}", n, "abbc")) for n in range(4)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        assert run(["train", "--record", server.url, "-o", str(recorded.file.with_name("again.jsonl")), "--seconds", "0.1"]) == 0
        for n in range(6):
            chain(server, f"later {n}", n, "abc")
        change = {"if_version": 1, "changes": {"gamma": 0.5, "policy": "first_use", "retire_idle_s": 1}, "actor": "test"}
        assert server.call("PATCH", "/pbkv/knobs", change).status_code == 200
        play(server, workload(seed=1, workflows=3, turns=3))
        wait_for(lambda: server.state()["workflows"] == 0)
        state, seen = server.state(), events.drain()
        events.close()
        assert server.alive() and "Rank consensus checker is enabled" in server.log()
    assert state["fault"] is None
    told = state["predictor"]
    assert told["trained"] > 0 and told["error"] == 0 and told["fault"] is None
    assert told["signal"] == "hidden qwen3 2x64"
    assert told["trained"] + told["budget"] <= state["counts"]["predictions"]
    versions = {row["predictor"] for row in seen.rows["prediction"]}
    assert 8 in versions and versions <= {1, 8}
    assert seen.gaps == 0 and {"eviction", "prediction", "workflow"} <= set(seen.counts())
