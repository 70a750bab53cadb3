"""Two tensor-parallel ranks decide the same: SGLang's own consensus checker ends the server at the first difference."""

import threading
from pathlib import Path

import pytest

from tests.server.test_same_answers import play, workload
from tests.support.server import Events, running_server, wait_for

pytestmark = pytest.mark.server


def test_two_ranks_agree_through_load_knobs_and_retirement(tiny_model: Path) -> None:
    checker = {"SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1"}
    with running_server(tiny_model, config={"server": "tp2"}, max_total_tokens=3072, hicache_ratio=4, tp=2, env=checker) as server:
        events = Events(server.state()["events"])
        play(server, workload(seed=1, workflows=5, turns=4))
        change = {"if_version": 1, "changes": {"gamma": 0.5, "policy": "lae", "retire_idle_s": 1}, "actor": "test"}
        assert server.call("PATCH", "/pbkv/knobs", change).status_code == 200
        lanes = [threading.Thread(target=play, args=(server, workload(20 + n, 2, 3, context=200))) for n in range(3)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        wait_for(lambda: server.state()["workflows"] == 0)
        seen = events.drain()
        events.close()
        assert server.alive()
        assert "Rank consensus checker is enabled" in server.log()
        assert seen.gaps == 0
        assert {"eviction", "prefetch", "workflow", "knob"} <= set(seen.counts())
