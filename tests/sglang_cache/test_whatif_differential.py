"""What-if against the real thing: recorded calls on SGLang's cache with the plugin, whose event log goes through the real writer, wire
format, store and reader into a replay. Same hits token for token, same victims in the same order.
"""

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pbkv.engine.node import Node
from pbkv.whatif import hitrates
from pbkv.whatif.cachealone import CacheAlone
from pbkv.whatif.hitrates import replay_cache
from pbkv.whatif.order import in_order, order_of
from pbkv.whatif.recording import Recording
from pbkv.whatif.setting import Setting
from pbkv.workloads.layouts import LayoutName
from pbkv.workloads.tokens import TokenWorkflow
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.whole_calls import WholeCalls
from tests.support.recorded import Step, Tokens, live_tokens, order, recorded
from tests.whatif.runs import Run, read

CONCURRENCY, RUNNING, MAX_CALLS, CALLS, DIVISOR = 16, 4, 12, 260, 24
SOURCES: tuple[tuple[str, LayoutName], ...] = (("hyperagent", "private"), ("ag2", "shared"))
POLICIES = ("lru", "lae", "he", "first_use")
#: Page, host tier as a multiple of the device, write policy, and pages of the device as a share of what the live workflows would fill.
SHAPES = [(1, None, "write_through", 0.4), (16, None, "write_through", 0.7), (16, 1.2, "write_through", 0.3), (32, 1.2, "write_back", 0.4)]
Shape = tuple[int, float | None, str, float]


@cache
def steps(name: str, layout: LayoutName) -> tuple[list[Step], int]:
    """(calls in the order in which they begin, tokens that the live workflows would fill)."""
    workflows: list[TokenWorkflow] = recorded(name, layout, max_calls=MAX_CALLS)[1]
    begun = (step for step in order(workflows, CONCURRENCY, RUNNING) if step.kind == "begin")
    return list(itertools.islice(begun, CALLS)), int(CONCURRENCY * live_tokens(workflows)) // DIVISOR


def on_sglang(name: str, layout: LayoutName, shape: Shape, policy: str) -> WholeCalls:
    """All calls on the real cache."""
    page, host, write_policy, share = shape
    made, live = steps(name, layout)
    knobs = {"policy": policy, "host_order": "score" if policy == "first_use" else "recency"}
    size = int(live * share) // page * page
    real = WholeCalls(Bench(plugin=knobs, page=page, host=host, size=size, write_policy=write_policy, observe=True))
    tokens = Tokens(divisor=DIVISOR)
    for step in made:
        real.make(step.workflow, step.call, tokens)
    real.bench.close()
    return real


class Watched(CacheAlone):
    """`victims`: (tier, ids of all pages from the root to the victim's end), in order."""

    newest: "Watched"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.victims: list[tuple[str, tuple[int, ...]]] = []
        for tier in ("device", "host"):
            setattr(self.manager, f"next_{tier}_victim", self._watched(tier, getattr(self.manager, f"next_{tier}_victim")))
        Watched.newest = self

    def _watched(self, tier: str, choose: Any) -> Any:
        def chosen() -> Any:
            record = choose()
            if record is not None:
                self.victims.append((f"{tier} victim", self._path(record.node)))
            return record

        return chosen

    def _path(self, node: Node) -> tuple[int, ...]:
        pages: tuple[int, ...] = ()
        while node is not self.tree.root:
            pages, node = node.key + pages, node.parent
        return pages


def content(recording: Recording, real: WholeCalls) -> dict[int, tuple[int, ...]]:
    """Page of the recording -> its tokens, which are the same wherever it is referred to."""
    found: dict[int, tuple[int, ...]] = {}
    page = recording.engine.page_size
    for call, (prompt, output) in zip(in_order(recording, order_of(recording)), real.calls, strict=True):
        tokens, pages = prompt + output[:-1], call.pages + call.output_pages
        assert len(pages) == len(tokens) // page
        for n, number in enumerate(pages):
            text = tuple(tokens[n * page : (n + 1) * page])
            assert found.setdefault(number, text) == text
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("name", "layout"), SOURCES)
def test_same_hits_and_victims_from_the_log(
    name: str, layout: LayoutName, shape: Shape, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hitrates, "CacheAlone", Watched)
    real = on_sglang(name, layout, shape, policy)
    recording = read(Run(real.bench.sink.payloads).store(tmp_path / "run.duckdb"))
    assert (recording.calls, recording.unknown_calls, recording.knobs["policy"]) == (CALLS, 0, policy)
    outcome = replay_cache(recording)
    assert [tuple(row) for row in outcome.calls[["device_hit", "host_hit"]].tolist()] == real.hits
    tokens = content(recording, real)
    victims = [(tier, tuple(token for page in path for token in tokens[page])) for tier, path in Watched.newest.victims]
    wanted = [entry for entry in real.log if entry[0].endswith("victim")]
    assert victims == wanted
    assert sum(tier == "device victim" for tier, _ in victims) > 50, "too few evictions to mean anything"
    assert shape[1] is None or sum(tier == "host victim" for tier, _ in victims) > 20
    assert outcome.figures["hit"] == pytest.approx(recording.measured["hit"], abs=1e-12) and outcome.figures["hit"] > 0.1
    assert recording.measured["evicted"] == outcome.figures["evicted_live"] + outcome.figures["evicted_retired"]


def test_another_setting_is_told_from_one_log(tmp_path: Path) -> None:
    """The log of a run with lru says what the real cache finds with another policy and another pool."""
    shape = SHAPES[1]
    base = read(Run(on_sglang("hyperagent", "private", shape, "lru").bench.sink.payloads).store(tmp_path / "lru.duckdb"))
    hits: list[list[tuple[int, int]]] = []
    for policy, share in (("he", 0.7), ("first_use", 0.7), ("he", 0.4)):
        other = on_sglang("hyperagent", "private", (*shape[:3], share), policy)
        knobs: dict[str, Any] = {"policy": policy, "host_order": "score" if policy == "first_use" else "recency"}
        outcome = replay_cache(base, Setting(**knobs, device_tokens=other.bench.size))
        hits.append([tuple(row) for row in outcome.calls[["device_hit", "host_hit"]].tolist()])
        assert hits[-1] == other.hits
    assert len({tuple(each) for each in hits}) == 3, "settings that make no difference would prove nothing"
