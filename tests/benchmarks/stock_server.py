"""The same recorded calls on SGLang servers: stock ones and ones with the plugin, one at a time.

Prompts are the recorded ones, scaled, and what the server itself generated in the place of recorded outputs. Calls are sent in one fixed
order with so many at most under way, so every server sees the same. Hits are those of SGLang's own `meta_info`.
"""

import json
import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.support.recorded import Step, Tokens
from tests.support.server import Reply, Server

#: A server with so many device tokens, and with `env`, `extra` flags, or `config` (then with the plugin).
Start = Callable[..., AbstractContextManager[Server]]
#: Stock configurations: what their servers are started with.
STOCK: dict[str, dict[str, Any]] = {
    "SGLang lru, Rust core": {},
    "SGLang lru, Python core": {"env": {"SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": "python"}},
    "SGLang session radix cache": {"extra": ("--enable-session-radix-cache",)},
}
#: Policies of the servers with the plugin.
POLICIES = ("lru", "lae", "he", "first_use")


@dataclass(frozen=True)
class Scale:
    """How recorded calls become requests: segments a `divisor`-th as long, `running` calls at most under way, ids below `vocabulary`."""

    divisor: int = 6
    running: int = 4
    vocabulary: int = 256


@dataclass
class Served:
    """Rates of one configuration. `plugin_us_per_step`, `plugin_us_per_call`: what the plugin reports of its own time, if there is one."""

    hit: float
    calls: int
    calls_per_s: float
    ttft_ms_mean: float
    ttft_ms_p95: float
    plugin_us_per_step: float | None = None
    plugin_us_per_call: float | None = None

    def as_json(self) -> dict[str, float]:
        """Rounded, without what there is not."""
        return {name: round(value, 2) for name, value in vars(self).items() if value is not None}


class Conversations:
    """Prompts of calls in which outputs are what was generated."""

    def __init__(self, scale: Scale) -> None:
        self._tokens = Tokens(scale.vocabulary, scale.divisor)
        self._said: dict[int, list[int]] = {}

    def prompt(self, step: Step) -> list[int]:
        """Token ids of the call's prompt."""
        whole: array[int] = array("q")
        for segment in step.call.prompt:
            said = self._said.get(segment.key)
            whole.extend(said if said is not None else self._tokens.of([segment]))
        return whole.tolist()

    def output(self, step: Step) -> int:
        """How many tokens the call generates."""
        return len(self._tokens.of([step.call.output]))

    def said(self, step: Step, ids: list[int]) -> None:
        """The call has generated `ids`."""
        self._said[step.call.output.key] = ids


def stream(server: Server, body: dict[str, Any]) -> tuple[Reply, float]:
    """(last piece of a streamed reply, seconds until the first one)."""
    started = time.perf_counter()
    first = 0.0
    reply: Reply = {}
    with server.stream("/generate", {**body, "stream": True}) as answer:
        assert answer.status_code == 200, answer.text
        for line in answer.iter_lines():
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - started
                reply = json.loads(line[6:])
    assert "error" not in reply and reply, reply
    return reply, first


def play(server: Server, steps: Sequence[Step], scale: Scale, *, sessions: bool = False) -> Served:
    """All steps in order; a session is closed at the end of its workflow."""
    conversations, running = Conversations(scale), dict[int, Future[tuple[Reply, float]]]()
    prompt = cached = 0
    ttft: list[float] = []
    started = time.perf_counter()
    with ThreadPoolExecutor(scale.running) as pool:
        for step in steps:
            if step.kind == "begin":
                body = request(step, conversations.prompt(step), conversations.output(step), sessions=sessions)
                running[step.number] = pool.submit(stream, server, body)
            elif step.kind == "end":
                reply, first = running.pop(step.number).result()
                conversations.said(step, reply["output_ids"])
                meta = reply["meta_info"]
                prompt, cached = prompt + meta["prompt_tokens"], cached + meta["cached_tokens"]
                ttft.append(first * 1e3)
                if sessions and step.call.final:
                    server.call("POST", "/close_session", {"session_id": step.workflow})
        for left in running.values():
            left.result()
    rate = len(ttft) / (time.perf_counter() - started)
    return Served(100 * cached / prompt, len(ttft), rate, statistics.fmean(ttft), sorted(ttft)[len(ttft) * 95 // 100])


def request(step: Step, prompt: list[int], output: int, *, sessions: bool = False) -> dict[str, Any]:
    """The body of a call: greedy, exactly `output` tokens, with the identity the server understands."""
    sampling: dict[str, Any] = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
    body: dict[str, Any] = {"input_ids": prompt, "sampling_params": sampling}
    if sessions:
        return {**body, "session_id": step.workflow}
    sampling["custom_params"] = {"pbkv": {"workflow": step.workflow, "agent": step.call.agent, "final": step.call.final}}
    return body


def compare(
    start: Start, steps: Sequence[Step], size: int, scale: Scale, stock: Sequence[str] = tuple(STOCK), policies: Sequence[str] = POLICIES,
) -> dict[str, Served]:
    """Rates of each configuration with `size` device tokens, each on a server of its own."""
    found: dict[str, Served] = {}
    for name in stock:
        with start(size, **STOCK[name]) as server:
            found[name] = play(server, steps, scale, sessions="extra" in STOCK[name])
    for policy in policies:
        # A server of its own: another policy's run would have taught the predictor these very calls.
        with start(size, config={"server": "bench", "knobs": {"policy": policy}}) as server:
            found[f"pbkv {policy}"] = play_watched(server, steps, scale)
    return found


def play_watched(server: Server, steps: Sequence[Step], scale: Scale) -> Served:
    """`play` on a server with the plugin, with what the plugin says it took."""
    before = server.state()["step_us"]
    served = play(server, steps, scale)
    after = server.state()["step_us"]
    spent = after["steps"] * after["mean"] - before["steps"] * before["mean"]
    served.plugin_us_per_step = spent / max(1, after["steps"] - before["steps"])
    served.plugin_us_per_call = spent / max(1, served.calls)
    return served
