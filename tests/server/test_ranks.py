"""Ranks of one server. Tensor parallel ones decide the same: SGLang's own consensus checker ends the server at the first difference.
Data parallel ones decide apart: each has its own cache, all follow the same knobs, and each has its own event stream.
"""

from pathlib import Path
from typing import Any

import pytest

from pbkv.control.client import ControlClient
from tests.server.mixed import mixed, play
from tests.server.ranks import agree, two_ranks
from tests.server.test_same_answers import play as play_calls
from tests.server.test_same_answers import workload
from tests.support.server import Events, running_server, wait_for

pytestmark = pytest.mark.server


def test_two_ranks_agree_through_load_knobs_and_retirement(tiny_model: Path) -> None:
    with two_ranks(tiny_model) as server:
        told = agree(server, mixed(5, 70), seed=5, every=6)
        assert told.turned >= 8, "every policy has been in force"
        assert told.gaps == 0
        assert told.aborted > 0
        assert {"eviction", "prefetch", "workflow", "knob"} <= set(told.events)


def test_replicas_cache_apart_and_follow_the_same_knobs(tiny_model: Path) -> None:
    """Two data-parallel replicas; SGLang deals requests out in turn."""
    options: dict[str, Any] = {"max_total_tokens": 3072, "hicache_ratio": 4, "extra": ("--dp", "2")}
    with running_server(tiny_model, config={"server": "dp2"}, env={"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}, **options) as server:
        client = ControlClient(server.url, actor="test")
        state = server.state()
        streams = [Events(events) for events, _ in state["streams"]]
        assert len(streams) == 2
        calls = workload(seed=3, workflows=4, turns=3)
        before = play_calls(server, calls)
        result = client.set({"policy": "first_use", "gamma": 0.5}, reason="both")
        assert play_calls(server, calls) == before
        play(server, mixed(6, 20))
        rows = [events.drain().rows for events in streams]
        for own in rows:
            assert {(k["version"], k["sched_step"] > 0) for k in own["knob"]} == {(result["version"], True)}
            assert len(own["call"]) >= len(calls) // 2
            assert sum(e["tokens"] for e in own["eviction"]) > 0
        assert server.state()["counts"]["calls"] - state["counts"]["calls"] == sum(len(own["call"]) for own in rows)
        assert [events.ranks for events in streams] == [{0}, {1}]
        assert all(events.gaps == 0 for events in streams)
        for events in streams:
            events.close()
        wait_for(lambda: server.call("POST", "/flush_cache").status_code == 200)
        assert server.state()["leaves"] == 0
        assert server.alive()
