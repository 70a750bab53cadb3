"""A model with multi-head latent attention: its cache holds latents instead of keys and values, and is managed all the same."""

from collections.abc import Iterator

import pytest

from pbkv.events.schema import PREFETCH_RESULTS
from tests.server.test_same_answers import play, workload
from tests.support.server import Events, Server, running_server, wait_for

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def latent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from pbkv_sglang_cpu.model import make_model

    model = make_model(tmp_path_factory.mktemp("model") / "mla", kind="mla")
    with running_server(model, config={"server": "mla"}, max_total_tokens=3072, hicache_ratio=4) as server:
        yield server


def answers_from_an_empty_cache(server: Server, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens for each prompt, with nothing cached before it."""
    cold: list[list[int]] = []
    for prompt in prompts:
        wait_for(lambda: server.call("POST", "/flush_cache").status_code == 200)
        cold.append(server.generate(prompt, 32)["output_ids"])
    return cold


def test_answers_from_the_cache_are_those_without_it(latent: Server) -> None:
    events = Events(latent.state()["events"])
    calls = workload(seed=1, workflows=9, turns=5)
    warm = play(latent, calls)
    seen = events.drain()
    events.close()
    assert sum(r["host_hit_tokens"] for r in seen.rows["call"]) > 0
    assert sum(r["tokens"] for r in seen.rows["eviction"]) > 3072
    assert {"issued", "completed"} <= {PREFETCH_RESULTS[r["result"]] for r in seen.rows["prefetch"]}
    picked = range(0, len(calls), 4)
    assert [warm[n] for n in picked] == answers_from_an_empty_cache(latent, [calls[n][0] for n in picked])
    assert len({tuple(w) for w in warm}) > len(warm) // 2  # a model that ignores its prompt would pass


def test_the_size_of_a_tokens_latent_is_known(latent: Server) -> None:
    """Moved bytes are tokens times (32 + 16) numbers of 4 bytes in 2 layers."""
    events = Events(latent.state()["events"])
    play(latent, workload(seed=2, workflows=2, turns=2))
    seen = events.drain()
    events.close()
    moved = [r["d2h_bytes"] for r in seen.rows["pcie_window"] if r["d2h_bytes"]]
    assert moved and all(bytes_ % (48 * 4 * 2) == 0 for bytes_ in moved)
