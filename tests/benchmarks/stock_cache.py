"""One fixed order of recorded calls on SGLang's real cache alone, for each configuration: what of the prompts was cached, and CPU time.

A call does here what it does in a server: it waits with its path held where the policy asks for that, is matched, makes room, is inserted
and keeps its path locked while it runs; at its end its output is inserted too. Copies from the host take no time. A call for which the
running ones leave no room is not kept; it is counted as `refused`.
"""

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import FINISH_LENGTH
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixKey

from pbkv.workloads.tokens import TokenCall
from tests.sglang_cache.harness import Bench
from tests.support.recorded import Step, Tokens

PAGE = 16
#: Configurations in the order of the tables; the options are those of the harness.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "SGLang lru, Rust core": {"core": "rust"},
    "SGLang lru, Python core": {"core": "python"},
    "SGLang session radix cache": {"session": True},
    "pbkv lae": {"plugin": {"policy": "lae"}},
    "pbkv he": {"plugin": {"policy": "he"}},
    "pbkv first_use": {"plugin": {"policy": "first_use"}},
}


class Discard:
    """A subscriber that takes every message of the event stream and keeps none."""

    def offer(self, seq: int, payload: bytes) -> bool:
        """Taken."""
        return True


@dataclass
class Found:
    """Sums over the measured calls; `cpu_ns` is the scheduler thread's, for all of a call's work in the cache."""

    calls: int = 0
    prompt: int = 0
    device: int = 0
    host: int = 0
    refused: int = 0
    cpu_ns: int = 0
    #: (device, host) hit of each call in order.
    hits: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    @property
    def hit(self) -> float:
        """Percent of prompt tokens that were cached, on either tier."""
        return 100 * (self.device + self.host) / self.prompt if self.prompt else 0.0

    @property
    def us_per_call(self) -> float:
        """Microseconds of CPU time."""
        return self.cpu_ns / max(1, self.calls) / 1e3


class Alone:
    """One cache of `size` device tokens. With the plugin, events are packed as in a server and thrown away."""

    def __init__(self, options: dict[str, Any], size: int, host: float | None = None) -> None:
        self.bench = Bench(page=PAGE, size=size // PAGE * PAGE, host=host, **options)
        self._sessions = bool(options.get("session"))
        self._cache, self._runtime = self.bench.cache, self.bench.runtime
        self._running: dict[int, tuple[Any, int, Any]] = {}
        self._waiting: dict[int, Any] = {}
        if self._runtime is not None:
            self.bench.sink = Discard()  # type: ignore[assignment]
            self.bench._observe()

    # ---- a call ------------------------------------------------------------------------------------------------------------

    def queue(self, number: int, workflow: str, call: TokenCall, prompt: "array[int]") -> None:
        """It waits."""
        if self._runtime is not None:
            req = self._waiting[number] = self._request(workflow, call, prompt)
            self._guarded(self._runtime.calls.queued, req)

    def begin(self, number: int, workflow: str, call: TokenCall, prompt: "array[int]") -> tuple[int, int] | None:
        """It runs: tokens found on device and host, None if there is no room for it."""
        req = self._waiting.pop(number, None) or self._request(workflow, call, prompt)
        if self._runtime is not None:
            self._guarded(self._runtime.calls.prune, list(self._waiting.values()))
        key = self._key(prompt)
        found = self._cache.match_prefix(MatchPrefixParams(key=key))
        hit = found.device_prefix_len, found.host_hit_length
        if found.host_hit_length:
            self._cache.load_back(found.best_match_node)
        self.bench.settle()  # copies are acknowledged between two steps; until then their paths are locked
        end = self._keep(key)
        if end is None:
            return None
        req.last_node, req.cached_tokens, req.cached_tokens_device, req.cached_tokens_host = end, sum(hit), *hit
        self._running[number] = req, end, self._cache.inc_lock_ref(end).to_dec_params()
        if self._runtime is not None:
            self._guarded(self._runtime.calls.checkpoint, req)
            self._runtime.telemetry.end_step(number)
        return hit

    def end(self, number: int, whole: "array[int]", output: int, *, final: bool) -> None:
        """It has written `output` tokens, the last of `whole`."""
        if number not in self._running:
            return
        req, node, lock = self._running.pop(number)
        req.output_ids, req.finished_reason = whole[len(whole) - output :], FINISH_LENGTH(output)
        end = self._keep(self._key(whole))
        req.last_node = node if end is None else end
        if self._runtime is not None:
            self._guarded(self._runtime.calls.checkpoint, req)
        if self._sessions:
            self._cache.session_refs.register_session_ref(req, leaf=req.last_node)
        self._cache.dec_lock_ref(node, lock)
        self.bench.settle()
        if self._runtime is not None:
            self._guarded(self._runtime.calls.finish, req)
            self._runtime.telemetry.end_step(number)
        if final and self._sessions:
            self._cache.release_radix_session(req.session_id)

    def _guarded(self, work: Callable[..., Any], *args: Any) -> None:
        guard = self._runtime.guard
        guard.run(work, *args)
        assert not guard.fault, guard.fault

    def _request(self, workflow: str, call: TokenCall, prompt: "array[int]") -> Any:
        """A request of SGLang's shape. The session cache knows a workflow as a session, the plugin by its identity."""
        custom = {"pbkv": {"workflow": workflow, "agent": call.agent, "final": call.final}} if self._runtime is not None else None
        times = SimpleNamespace(scheduler_recv_time=0.0, forward_entry_time=0.0, prefill_finished_time=0.0)
        session = workflow if self._sessions else None
        generation = self._cache.ensure_session_generation(workflow) if self._sessions else None
        return SimpleNamespace(
            rid="r", last_node=None, sampling_params=SimpleNamespace(custom_params=custom), kv_hints=None, session=None,
            session_id=session, session_generation=generation, extra_key=None, cache_salt=None, cached_tokens=0, cached_tokens_device=0,
            cached_tokens_host=0, cached_tokens_storage=0, origin_input_ids=prompt, output_ids=array("q"), finished_reason=None,
            time_stats=times, finished=lambda: True,
        )

    # ---- the cache ---------------------------------------------------------------------------------------------------------

    def _key(self, tokens: "array[int]") -> Any:
        return RadixKey(tokens[: len(tokens) // PAGE * PAGE])

    def _keep(self, key: Any) -> int | None:
        """Insert; the node it ends in, None when the running calls leave no room."""
        cache, allocator = self._cache, self.bench.allocator
        found = cache.match_prefix(MatchPrefixParams(key=key))
        lock = cache.inc_lock_ref(found.last_device_node).to_dec_params()
        need = len(key) - found.device_prefix_len
        short = need - allocator.available_size()
        if short > 0:
            cache.evict(EvictParams(num_tokens=short))
        fresh = allocator.alloc(need) if need else torch.empty(0, dtype=torch.int64)
        end = None
        if fresh is not None:
            value = torch.cat([cache.path_device_indices(found.last_device_node), fresh])
            end = int(cache.insert(InsertParams(key=key, value=value, prev_prefix_len=found.device_prefix_len)).last_device_node)
        cache.dec_lock_ref(found.last_device_node, lock)
        return end


def play(options: dict[str, Any], steps: Sequence[Step], size: int, *, warm: int = 0, host: float | None = None, divisor: int = 1) -> Found:
    """All steps on a fresh cache; the first `warm` calls to begin are not measured."""
    alone, tokens, found, begun = Alone(options, size, host), Tokens(divisor=divisor), Found(), 0
    for step in steps:
        prompt = tokens.of(step.call.prompt)
        work = _work(alone, step, prompt, tokens)
        started = time.thread_time_ns()
        hit = work()
        took = time.thread_time_ns() - started
        begun += step.kind == "begin"
        if begun <= warm:
            continue
        found.cpu_ns += took
        if step.kind == "begin":
            found.calls += 1
            found.prompt += len(prompt)
            found.refused += hit is None
            found.hits.append(hit or (0, 0))
            found.device, found.host = found.device + found.hits[-1][0], found.host + found.hits[-1][1]
    alone.bench.close()
    return found


def _work(alone: Alone, step: Step, prompt: "array[int]", tokens: Tokens) -> Callable[[], Any]:
    """The step, with its tokens made beforehand: they are not the cache's work."""
    call = step.call
    if step.kind == "queue":
        return lambda: alone.queue(step.number, step.workflow, call, prompt)
    if step.kind == "begin":
        return lambda: alone.begin(step.number, step.workflow, call, prompt)
    output = tokens.of([call.output])
    return lambda: alone.end(step.number, prompt + output, len(output), final=call.final)

