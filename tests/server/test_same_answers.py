"""Output tokens with the plugin are those of the stock server, with evictions, host hits and prefetches in between."""

import random
import threading
import time
from typing import Any

import pytest

from pbkv.events.schema import PREFETCH_RESULTS
from tests.support.server import Events, Server

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


@pytest.mark.parametrize("policy", ["lru", "lae"])
def test_outputs_equal_under_other_policies(plugin: Server, stock: Server, policy: str) -> None:
    version = plugin.call("GET", "/pbkv/knobs").json()["version"]
    set_policy = {"if_version": version, "changes": {"policy": policy}, "actor": "test"}
    assert plugin.call("PATCH", "/pbkv/knobs", set_policy).status_code == 200
    calls = workload(seed=2, workflows=4, turns=3)
    try:
        assert play(plugin, calls) == play(stock, calls)
    finally:
        back = {"if_version": version + 1, "changes": {"policy": "he"}, "actor": "test"}
        assert plugin.call("PATCH", "/pbkv/knobs", back).status_code == 200


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
