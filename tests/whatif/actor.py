"""Drives an engine with everything a server is exposed to: fan-outs, clients that give up, sessions closed, knobs turned while it runs.

What is to happen lies in a plan made before, so that the same plan on the same engine is the same life.
"""

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pbkv.engine.engine import Engine
from pbkv.engine.requests import EngineRequest, Finished, pages_of
from pbkv.knobs import Change, Value


@dataclass(frozen=True)
class Planned:
    """A call: it comes `delay_s` after call `after` of its workflow has ended (-1: after the start); given up `patience_s` later."""

    agent: str
    pages: tuple[int, ...]
    prompt: int
    output: int
    more: tuple[int, ...]
    delay_s: float
    after: int
    final: bool = False
    max_tokens: int = 0
    patience_s: float = math.inf


@dataclass(frozen=True)
class Flow:
    """A workflow. `closed_s` after its last call somebody closes it; nan: nobody does."""

    name: str
    start_s: float
    calls: tuple[Planned, ...]
    attributed: bool = True
    closed_s: float = math.nan


@dataclass(frozen=True)
class Plan:
    """Workflows, and knobs to turn: (time, name, value)."""

    flows: tuple[Flow, ...]
    turns: tuple[tuple[float, str, Value], ...] = ()


@dataclass
class _State:
    flow: Flow
    left: int
    waiting: dict[int, list[int]] = field(default_factory=dict[int, list[int]])


class Actor:
    """Plays a plan. What happens to a server happens when its engine's clock has reached it, in order of time."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self._engine, self._heap, self._order = engine, list[tuple[float, int, Callable[..., None], tuple[Any, ...]]](), 0
        self._inside: dict[int, tuple[_State, int]] = {}
        self._number = 0
        for flow in plan.flows:
            state = _State(flow, len(flow.calls))
            for n, call in enumerate(flow.calls):
                state.waiting.setdefault(call.after, []).append(n)
            self._release(state, -1, flow.start_s)
        for at, name, value in plan.turns:
            self._at(at, self._turn, name, value)

    def run(self) -> None:
        heap, engine = self._heap, self._engine
        while heap or self._inside:
            while heap and self._pointless(*heap[0][2:]):
                heapq.heappop(heap)
            for ended in engine.advance(heap[0][0] if heap else math.inf):
                self._ended(ended)
            while heap and heap[0][0] <= engine.clock.now:
                at, _, action, given = heapq.heappop(heap)
                action(at, *given)
        if engine.reporter:
            engine.reporter.step_ended()

    def _pointless(self, action: Callable[..., None], given: tuple[Any, ...]) -> bool:
        """A client's timer goes with its call; a workflow that is not live cannot be closed. The log knows nothing of either."""
        over = action == self._give_up and given[0] not in self._inside
        return over or (action == self._close and given[0] not in self._engine.manager.state.live)

    def _at(self, at: float, action: Callable[..., None], *given: Any) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, action, given))

    def _release(self, state: _State, ended: int, at: float) -> None:
        for n in state.waiting.get(ended, ()):
            self._at(at + state.flow.calls[n].delay_s, self._submit, state, n)

    def _submit(self, at: float, state: _State, n: int) -> None:
        self._number += 1
        number, call, flow = self._number, state.flow.calls[n], state.flow
        self._inside[number] = (state, n)
        self._engine.submit(EngineRequest(
            number, flow.name, call.agent, call.pages, call.prompt, call.output, call.more, call.final, flow.attributed, call.max_tokens,
        ), at)
        if math.isfinite(call.patience_s):
            self._at(at + call.patience_s, self._give_up, number)

    def _give_up(self, at: float, number: int) -> None:
        ended = self._engine.abort(number) if number in self._inside else None
        if ended is not None:
            self._ended(ended)

    def _ended(self, ended: Finished) -> None:
        state, n = self._inside.pop(ended.request.id)
        state.left -= 1
        self._release(state, n, ended.ended)
        if not state.left and not math.isnan(state.flow.closed_s):
            self._at(ended.ended + state.flow.closed_s, self._close, state.flow.name)

    def _close(self, at: float, name: str) -> None:
        self._engine.close(name)

    def _turn(self, at: float, name: str, value: Value) -> None:
        manager = self._engine.manager
        old, manager.knobs.values[name] = manager.knobs.values[name], value
        manager.knobs.version += 1
        manager.knobs_changed({name})
        if manager.telemetry:
            manager.telemetry.knob(Change(manager.knobs.version, name, old, value, "tester", "manual", ""))
            manager.telemetry.end_step(manager.step)


def random_plan(
    seed: int, page_size: int, *, flows: int = 24, turns: tuple[tuple[str, tuple[Value, ...]], ...] = (), span_s: float = 12.0,
) -> Plan:
    """Growing conversations over shared beginnings, with fan-outs, delays of nothing, impatient clients, and calls without identity."""
    rng = random.Random(seed)
    fresh = iter(range(1_000_000, 1 << 40))
    made = tuple(_flow(rng, fresh, n, page_size, span_s) for n in range(flows))
    turned = tuple((rng.uniform(0, span_s), name, rng.choice(values)) for name, values in turns for _ in range(3))
    return Plan(tuple(sorted(made, key=lambda flow: flow.start_s)), tuple(sorted(turned)))


def _flow(rng: random.Random, fresh: Any, n: int, page: int, span_s: float) -> Flow:
    attributed = rng.random() > 0.1
    agents = rng.sample("ABCDE", rng.randint(1, 3))
    history: dict[str, list[int]] = {agent: [1 + 10 * ord(agent) + place for place in range(rng.choice((2, 4)))] for agent in agents}
    calls: list[Planned] = []
    total = rng.randint(1, 7)
    after = -1
    while len(calls) < total:
        wide = rng.choice((1, 1, 1, 2, 3))
        level = range(len(calls), min(len(calls) + wide, total))
        for at in level:
            agent = rng.choice(agents)
            calls.append(_call(rng, fresh, history, agent, page, after, last=at == total - 1))
        after = level[-1]
    start = rng.choice((0.0, rng.uniform(0, span_s)))
    closed = rng.choice((0.0, rng.uniform(0, 1))) if rng.random() < 0.3 and attributed and not calls[-1].final else math.nan
    return Flow(f"flow-{n}", start, tuple(calls), attributed, closed)


def _call(rng: random.Random, fresh: Any, history: dict[str, list[int]], agent: str, page: int, after: int, *, last: bool) -> Planned:
    known = history[agent]
    news = [next(fresh) for _ in range(rng.randint(0, 3))]
    pages = (*known, *news)
    prompt, output = len(pages) * page + rng.randrange(page) or 1, rng.randint(1, 3 * page)
    _, more = pages_of(prompt, output, page)
    written = tuple(next(fresh) for _ in range(more))
    history[agent] = [*pages, *written]
    patience = rng.uniform(0, 1.5) if rng.random() < 0.12 else math.inf
    announced = output + rng.randrange(40) if rng.random() < 0.3 and math.isinf(patience) else 0
    delay = rng.choice((0.0, 0.0, rng.uniform(0, 1)))
    return Planned(agent, pages, prompt, output, written, delay, after, last and rng.random() < 0.6, announced, patience)
