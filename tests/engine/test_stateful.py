"""Any sequence of operations on an engine: its accounts balance after each, and every call that came in goes out."""

import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pbkv.engine.engine import Engine
from pbkv.engine.requests import EngineRequest, Finished, pages_of
from pbkv.engine.settings import EngineSettings
from pbkv.knobs import KnobSet
from tests.engine.invariants import check_engine

PAGES = 32


class Lives(RuleBasedStateMachine):
    """A small engine under calls that share prefixes, aborts, ends of workflows, changes of policy, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Any = None
        self.inside: dict[int, EngineRequest] = {}
        self.numbers = 0

    @initialize(
        page=st.sampled_from([1, 4, 16]), host=st.sampled_from([0, 12, 50]), running=st.integers(1, 6),
        chunk=st.sampled_from([4, 20, 1000]), write=st.sampled_from(["write_through", "write_through_selective", "write_back"]),
        policy=st.sampled_from(["lru", "he", "first_use"]),
        prefetch=st.sampled_from(["off", "conservative", "aggressive"]), shared=st.sampled_from([0.5, 1.0]),
    )
    def begin(self, page: int, host: int, running: int, chunk: int, write: Any, policy: str, prefetch: str, shared: float) -> None:
        knobs = KnobSet()
        knobs.values.update(policy=policy, prefetch=prefetch)
        self.engine = Engine(EngineSettings(
            page_size=page, device_tokens=PAGES * page, host_tokens=host * page, write_policy=write, max_running=running,
            chunk_tokens=max(chunk, page), link_shared=shared,
        ), knobs)

    @rule(
        path=st.lists(st.integers(1, 2), min_size=1, max_size=8), output=st.integers(1, 40), tail=st.integers(0, 3),
        workflow=st.sampled_from(["a", "b", "c", ""]), agent=st.sampled_from("xyz"), final=st.booleans(), more=st.integers(0, 3),
    )
    def submit(self, path: list[int], output: int, tail: int, workflow: str, agent: str, final: bool, more: int) -> None:
        page = self.engine.settings.page_size
        prompt = len(path) * page + tail % page
        if prompt + output + more + 2 * page >= PAGES * page:
            return
        full, further = pages_of(prompt, output, page)
        ids = tuple(hash(tuple(path[: n + 1])) for n in range(full))
        self.numbers += 1
        request = EngineRequest(
            self.numbers, workflow, agent, ids, prompt, output, tuple(hash((ids, tail, n)) for n in range(further)), final, bool(workflow),
            output + more,
        )
        self.engine.submit(request)
        self.inside[request.id] = request

    @rule(seed=st.integers(0, 1 << 16), calls=st.integers(2, 12))
    def burst(self, seed: int, calls: int) -> None:
        """Many calls at once, so that memory runs short."""
        rng = random.Random(seed)
        for _ in range(calls):
            path = [rng.randint(1, 2) for _ in range(rng.randint(1, 8))]
            self.submit(path, rng.randint(1, 40), rng.randint(0, 3), rng.choice(["a", "b", "c", ""]), rng.choice("xyz"), rng.random() < 0.2,
                        rng.choice((0, 0, 9)))

    @rule(seconds=st.floats(0.001, 0.6))
    def advance(self, seconds: float) -> None:
        until = self.engine.now + seconds
        for ended in self.engine.advance(until):
            self.ended(ended)

    @rule()
    def drain(self) -> None:
        while self.inside:
            ended = self.engine.advance()
            assert ended, "an engine with calls came to a stop"
            for each in ended:
                self.ended(each)

    @rule(which=st.integers(0, 100))
    def abort(self, which: int) -> None:
        if self.inside:
            number = sorted(self.inside)[which % len(self.inside)]
            ended = self.engine.abort(number)
            assert ended.aborted
            self.ended(ended)

    @rule(workflow=st.sampled_from("abc"))
    def close(self, workflow: str) -> None:
        self.engine.close(workflow)

    @rule(policy=st.sampled_from(["lru", "lae", "he", "first_use", "kvflow_all"]))
    def change_policy(self, policy: str) -> None:
        self.engine.knobs.values["policy"] = policy
        self.engine.manager.knobs_changed({"policy"})

    @rule()
    def flush(self) -> None:
        assert self.engine.flush() == (not self.inside)
        if not self.inside:
            assert self.engine.tree.device.free == self.engine.tree.device.size

    def ended(self, ended: Finished) -> None:
        request = self.inside.pop(ended.request.id)
        assert ended.device_hit + ended.host_hit < request.prompt_tokens
        if not ended.aborted:
            assert ended.output_tokens == request.output_tokens
            assert ended.arrived <= ended.admitted < ended.first_token <= ended.ended

    @invariant()
    def balanced(self) -> None:
        if self.engine is not None:
            check_engine(self.engine)
            assert set(self.inside) == set(self.engine._calls)

    def teardown(self) -> None:
        if self.engine is not None:
            self.drain()
            tree = self.engine.tree
            while (done := self.engine.copies.next_done) is not None:
                self.engine.advance(done + 1e-9)
                self.engine.copies.reap()
            check_engine(self.engine)
            assert tree.device.locked == tree.device.held == 0
            cached = tree.device.cached
            assert tree.evict(PAGES) == cached
            assert tree.device.free == tree.device.size


Lives.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestLives = Lives.TestCase
