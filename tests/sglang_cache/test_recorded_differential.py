"""Recorded workloads through SGLang's real cache with the plugin and through the embedded engine's tree: same hits, same victims, in the
same order. Segments are a 24th as long as recorded, which keeps who shares what with whom.
"""

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from pbkv.identity import CallIdentity
from pbkv.workloads.layouts import LayoutName
from tests.engine.invariants import check_tree
from tests.engine.parts import make_manager, make_tree
from tests.engine.player import TreePlayer
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.moves import Move, Player
from tests.support.recorded import Step, Tokens, live_tokens, order, recorded

CONCURRENCY, RUNNING, MAX_CALLS, STEPS, DIVISOR = 20, 4, 16, 900, 24
SOURCES: tuple[tuple[str, LayoutName], ...] = (("hyperagent", "private"), ("ag2", "shared"), ("who_and_when", "group"))
#: Page, host tier as a multiple of the device, write policy, and pages of the device as a share of what the live workflows would fill.
SHAPES = [
    (1, None, "write_through", 0.4), (16, None, "write_through", 0.7), (16, 1.2, "write_through", 0.3), (64, 1.2, "write_back", 0.4),
]


@cache
def steps(name: str, layout: LayoutName) -> tuple[list[Step], int]:
    """(the first STEPS steps, tokens that the live workflows would fill)."""
    _, workflows = recorded(name, layout, max_calls=MAX_CALLS)
    made = list(itertools.islice(order(workflows, CONCURRENCY, RUNNING), STEPS))
    return made, int(CONCURRENCY * live_tokens(workflows)) // DIVISOR


def moves(made: list[Step], *, host: bool) -> Iterator[Move]:
    """What a scheduler would do: look, load back, admit, and at the end of a call keep prompt and output."""
    tokens = Tokens(divisor=DIVISOR)
    for step in made:
        prompt = tokens.of(step.call.prompt).tolist()
        if step.kind == "queue":
            yield "queue", step.number, prompt
        elif step.kind == "begin":
            yield "match", prompt
            if host:
                yield "load_back", prompt
                yield ("settle",)
            yield "begin", step.number, step.workflow, step.call.agent, prompt
        else:
            yield "end", step.number, prompt + tokens.of([step.call.output]).tolist(), step.call.final


class RealCalls(Player):
    """Calls that run for a while, with their paths locked, on SGLang's cache."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._running: dict[int, Any] = {}

    def _records(self, tokens: list[int]) -> list[Any]:
        return self.bench.records(tokens[: len(tokens) // self.bench.page * self.bench.page])

    def queue(self, number: int, tokens: list[int]) -> None:
        self.bench.runtime.hold(number, self._records(tokens))

    def begin(self, number: int, workflow: str, agent: str, tokens: list[int]) -> Any:
        self.bench.runtime.release(number)
        node = self.bench.put(tokens)
        if node is None:
            return None
        state = self.bench.runtime.state
        lock = self.bench.cache.inc_lock_ref(node).to_dec_params()
        made, agent_id = state.begin_call(CallIdentity(workflow, agent, False))
        state.touch(made, agent_id, self._records(tokens))
        self._running[number] = made, agent_id, node, lock
        return len(self.path(self.bench.node(node)))

    def end(self, number: int, tokens: list[int], final: bool) -> Any:
        if number not in self._running:
            return None
        made, agent_id, node, lock = self._running.pop(number)
        kept = self.bench.put(tokens)
        if kept is not None:
            self.bench.runtime.state.touch(made, agent_id, self._records(tokens), output=True)
        self.bench.cache.dec_lock_ref(node, lock)
        self.bench.runtime.state.end_call(made, final=final)
        return kept is not None


class TreeCalls(TreePlayer):
    """The same on the embedded engine's tree."""

    def __init__(self, tree: Any) -> None:
        super().__init__(tree)
        self._running: dict[int, Any] = {}

    def _records(self, tokens: list[int]) -> list[Any]:
        pages = self.paging.pages(tokens)
        node, path = self.tree.match(pages, len(pages)).best, list[Any]()
        while node is not self.tree.root:
            path.append(node.record)
            node = node.parent
        return path[::-1]

    def _put(self, tokens: list[int]) -> Any:
        if self.put(tokens) is None:
            return None
        pages = self.paging.pages(tokens)
        return self.tree.match(pages, len(pages)).device

    def queue(self, number: int, tokens: list[int]) -> None:
        self.tree.keeper.hold(number, self._records(tokens))

    def begin(self, number: int, workflow: str, agent: str, tokens: list[int]) -> Any:
        self.tree.keeper.release(number)
        node = self._put(tokens)
        if node is None:
            return None
        state = self.tree.keeper.state
        self.tree.lock(node)
        made, agent_id = state.begin_call(CallIdentity(workflow, agent, False))
        state.touch(made, agent_id, self._records(tokens))
        self._running[number] = made, agent_id, node
        return len(self.path(node))

    def end(self, number: int, tokens: list[int], final: bool) -> Any:
        if number not in self._running:
            return None
        made, agent_id, node = self._running.pop(number)
        kept = self._put(tokens)
        if kept is not None:
            self.tree.keeper.state.touch(made, agent_id, self._records(tokens), output=True)
        self.tree.unlock(node)
        self.tree.keeper.state.end_call(made, final=final)
        return kept is not None


@pytest.mark.parametrize("policy", ["lru", "lae", "he", "first_use"])
@pytest.mark.parametrize(("page", "host", "write_policy", "share"), SHAPES)
@pytest.mark.parametrize(("name", "layout"), SOURCES)
def test_same_hits_and_victims(
    name: str, layout: LayoutName, page: int, host: float | None, write_policy: str, share: float, policy: str,
) -> None:
    made, live = steps(name, layout)
    size = int(live * share) // page * page
    knobs = {"policy": policy, "host_order": "score" if policy == "first_use" else "recency"}
    bench = Bench(plugin=knobs, page=page, host=host, size=size, write_policy=write_policy)
    host_tokens = 0 if host is None else int(bench.cache.cache_controller.mem_pool_host.size)
    manager = make_manager(knobs)
    real, ours = RealCalls(bench), TreeCalls(make_tree(size, host_tokens, page, write_policy, manager))
    for n, move in enumerate(moves(made, host=host is not None)):
        real.play(move)
        ours.play(move)
        assert ours.log[-8:] == real.log[-8:], f"they part at move {n}: {move[:2]}"
        if n % 100 == 0:
            check_tree(ours.tree)
    assert ours.log == real.log
    seen = {kind: sum(entry[0] == kind for entry in ours.log) for kind in ("device victim", "host victim", "begin")}
    assert seen["device victim"] > 50, "too few evictions to mean anything"
    assert host is None or seen["host victim"] > 20
    assert manager.counts["retired_workflows"] > 3
    bench.close()


def test_policies_differ_on_a_recording() -> None:
    """The comparison above would hold for caches that ignore the policy: victims must depend on it."""
    made, live = steps("hyperagent", "private")
    logs: dict[str, list[Any]] = {}
    for policy in ("lru", "lae", "he", "first_use"):
        ours = TreeCalls(make_tree(live // 32 * 16, 0, 16, "write_through", make_manager({"policy": policy})))
        for move in moves(made, host=False):
            ours.play(move)
        logs[policy] = [entry for entry in ours.log if entry[0] == "device victim"]
    assert len({tuple(log) for log in logs.values()}) == 4
