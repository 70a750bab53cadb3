"""Output tokens with the plugin are those of the stock server, with evictions, host hits and prefetches in between."""

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pbkv.events.schema import CALL_STATUS, PREFETCH_RESULTS, WORKFLOW_EVENTS
from pbkv.eviction.catalog import POLICIES
from tests.server.answers import compare, plugin_server
from tests.server.mixed import mixed
from tests.server.mixed import play as play_mixed
from tests.support.server import Events, Server, wait_for

pytestmark = pytest.mark.server


def workload(seed: int, workflows: int, turns: int, context: int = 450) -> list[tuple[list[int], dict[str, Any]]]:
    """Interleaved calls of several workflows, (tokens, identity) in order. Each agent's prompt is its last one, grown. Workflows start and
    end one after the other, so that what the ended left behind makes room to prefetch for the others."""
    rng = random.Random(seed)
    shared = [rng.randrange(256) for _ in range(64)]
    history: dict[tuple[int, str], list[int]] = {}
    calls: list[tuple[list[int], dict[str, Any]]] = []
    for turn in range(turns + workflows - 1):
        live = [w for w in range(workflows) if w <= turn < w + turns]
        for w in rng.sample(live, len(live)):
            agent = ("plan", "code", "test")[(turn - w) % 3]
            prompt = history.setdefault((w, agent), shared + [rng.randrange(256) for _ in range(context)])
            prompt = history[w, agent] = prompt + [rng.randrange(256) for _ in range(rng.randrange(20, 90))]
            calls.append((prompt, {"workflow": f"s{seed}-w{w}", "agent": agent, "final": turn == w + turns - 1}))
    return calls


def play(server: Server, calls: list[tuple[list[int], dict[str, Any]]]) -> list[list[int]]:
    sampling = [{"custom_params": {"pbkv": identity}} for _, identity in calls]
    return [server.generate(t, 32, sampling=s)["output_ids"] for (t, _), s in zip(calls, sampling, strict=True)]


def test_outputs_equal_stock(plugin: Server, stock: Server) -> None:
    calls = workload(seed=1, workflows=9, turns=5)
    events = Events(plugin.state()["events"])
    with_plugin = play(plugin, calls)
    assert with_plugin == play(stock, calls)
    seen = events.drain()
    events.close()
    assert seen.gaps == 0
    done = {PREFETCH_RESULTS[r["result"]] for r in seen.rows["prefetch"]}
    assert {"issued", "completed", "used"} <= done
    assert sum(r["host_hit_tokens"] for r in seen.rows["call"]) > 0
    assert sum(r["tokens"] for r in seen.rows["eviction"]) > 3072
    assert len(seen.rows["call"]) == len(calls)


STEPS = mixed(4, 60)


@pytest.fixture(scope="module")
def wanted(stock: Server) -> list[Any]:
    """The stock server's answers."""
    return play_mixed(stock, STEPS)


@pytest.mark.parametrize("policy", POLICIES)
def test_mixed_requests_are_answered_alike_at_every_policy(plugin: Server, wanted: list[Any], policy: str) -> None:
    proof = compare(plugin, STEPS, wanted, policy)
    assert proof.sound, proof
    assert proof.aborted > 0
    assert plugin.state()["fault"] is None


def test_prefetches_were_made_and_read_meanwhile(plugin: Server) -> None:
    """Over the policies above; at some of them what is loaded goes first and is seldom read."""
    assert plugin.state()["counts"]["prefetches_issued"] > 20


@pytest.mark.parametrize(("page", "write"), [(1, "write_back"), (64, "write_through_selective")])
def test_other_pages_and_write_policies_answer_alike(tiny_model: Path, wanted: list[Any], page: int, write: str) -> None:
    with plugin_server(tiny_model, page, write) as server:
        for policy in ("he", "first_use"):
            proof = compare(server, STEPS, wanted, policy)
            assert proof.same, (policy, proof)
            assert write != "write_back" or proof.host_hit_tokens  # selectively, little of 60 requests is backed up
        assert server.alive()


def test_concurrent_load_leaves_a_sound_cache(plugin: Server, stock: Server) -> None:
    """Calls at once, some aborted by their client; afterwards the same greedy request still gives the stock server's tokens and the
    server's own leak check, which kills it when a token is lost, has stayed silent."""
    lanes = [workload(seed=10 + lane, workflows=3, turns=3, context=200) for lane in range(4)]
    threads = [threading.Thread(target=play, args=(plugin, lane)) for lane in lanes]
    for thread in threads:
        thread.start()
    plugin.call("POST", "/abort_request", {"rid": "", "abort_all": True})
    for thread in threads:
        thread.join()
    probe = workload(seed=99, workflows=1, turns=2)
    assert play(plugin, probe) == play(stock, probe)
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:  # idle turns of the scheduler loop are where the check runs
        assert plugin.alive()
        time.sleep(0.2)
    assert "leak" not in plugin.log().lower().replace("memory_leak", "")


def test_a_call_aborted_while_it_waits_is_told(plugin: Server) -> None:
    """More long calls than may run at once, and all of them aborted: those in the queue never had KV to release."""
    events = Events(plugin.state()["events"])
    before = plugin.state()["counts"]["calls"]
    prompts = [[n] * 400 for n in range(14)]
    lanes = [
        threading.Thread(target=lambda p=p: plugin.call("POST", "/generate", {
            "input_ids": p, "sampling_params": {
                "max_new_tokens": 2000, "temperature": 0, "ignore_eos": True,
                "custom_params": {"pbkv": {"workflow": "gone", "agent": f"a{p[0]}", "final": True}},
            },
        })) for p in prompts
    ]
    for lane in lanes:
        lane.start()
    wait_for(lambda: plugin.call("GET", "/v1/loads").json()["loads"][0]["num_waiting_reqs"] >= 2)
    plugin.call("POST", "/abort_request", {"rid": "", "abort_all": True})
    for lane in lanes:
        lane.join()
    seen = events.drain()
    events.close()
    calls = seen.rows["call"]
    assert len(calls) == len(prompts) == plugin.state()["counts"]["calls"] - before
    assert {CALL_STATUS[c["status"]] for c in calls} == {"aborted"}
    waiting = [c for c in calls if not c["pages"]]
    assert len(waiting) >= 2
    assert all(c["attributed"] and c["queue_ms"] > 0 and c["output_tokens"] == 0 for c in waiting)
    kinds = Counter(WORKFLOW_EVENTS[w["event"]] for w in seen.rows["workflow"])
    assert kinds["start"] == kinds["retire"], "each was the last of its workflow"
