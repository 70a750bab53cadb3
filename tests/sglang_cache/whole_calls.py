"""Whole calls, one after the other, on SGLang's real cache with the plugin: each looks up, loads back, prefills, decodes and is over before
the next one comes. What happened goes into the plugin's own event log.
"""

import time
from array import array
from types import SimpleNamespace
from typing import Any

from sglang.srt.managers.schedule_batch import FINISH_LENGTH

from pbkv.workloads.tokens import TokenCall
from tests.sglang_cache.harness import Bench
from tests.sglang_cache.moves import Player
from tests.support.recorded import Tokens

SCHEDULER: Any = SimpleNamespace(waiting_queue=[], running_batch=SimpleNamespace(reqs=[]), max_running_requests=8)


class WholeCalls(Player):
    """`hits`: (device, host) tokens of each call in order. `calls`: its prompt's and its output's tokens. Victims are in `log`."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.hits: list[tuple[int, int]] = []
        self.calls: list[tuple[list[int], list[int]]] = []
        self._turn()

    def _turn(self) -> None:
        self.bench.runtime.guard.run(self.bench.runtime.after_plan, SCHEDULER, None)
        assert not self.bench.runtime.guard.fault, self.bench.runtime.guard.fault

    def make(self, workflow: str, call: TokenCall, tokens: Tokens) -> None:
        """A call from its arrival to its end."""
        prompt, output = tokens.of(call.prompt).tolist(), tokens.of([call.output]).tolist()
        page, calls, cache = self.bench.page, self.bench.runtime.calls, self.bench.cache
        req = _request(workflow, call, prompt)
        hit, node, lock = self._find(prompt[: (len(prompt) - 1) // page * page])
        req.cached_tokens, req.cached_tokens_device, req.cached_tokens_host = sum(hit), *hit
        end, lock = self._keep(prompt, node, lock)
        req.last_node = end
        calls.checkpoint(req)
        self.bench.settle()
        req.output_ids, req.finished_reason = array("q", output), FINISH_LENGTH(len(output))
        # The last token that is generated has no KV.
        req.last_node, lock = self._keep(prompt + output[:-1], end, lock)
        calls.checkpoint(req)
        cache.dec_lock_ref(req.last_node, lock)
        self.bench.settle()
        calls.finish(req)
        self._turn()
        self.hits.append(hit)
        self.calls.append((prompt, output))

    def _find(self, prompt: list[int]) -> tuple[tuple[int, int], Any, Any]:
        """What of the prompt is cached, loaded back where it is on the host alone; its end, locked."""
        cache, found = self.bench.cache, self.bench.match(prompt)
        node, lock = found.last_device_node, cache.inc_lock_ref(found.last_device_node).to_dec_params()
        host = found.host_hit_length if found.host_hit_length and cache.load_back(found.best_match_node) else 0
        if host:
            loaded = cache.inc_lock_ref(found.best_match_node).to_dec_params()
            cache.dec_lock_ref(node, lock)
            node, lock = found.best_match_node, loaded
            self.bench.settle()
        return (found.device_prefix_len, host), node, lock

    def _keep(self, tokens: list[int], node: Any, lock: Any) -> tuple[Any, Any]:
        """Put tokens behind the locked path to `node`; the lock reaches to their end."""
        cache, end = self.bench.cache, self.bench.put(tokens)
        assert end is not None, "one call at a time always has room"
        locked = cache.inc_lock_ref(end).to_dec_params()
        cache.dec_lock_ref(node, lock)
        return end, locked


def _request(workflow: str, call: TokenCall, prompt: list[int]) -> Any:
    """A request of SGLang's shape that arrives at this moment."""
    custom = {"pbkv": {"workflow": workflow, "agent": call.agent, "final": call.final}}
    times = SimpleNamespace(scheduler_recv_time=time.perf_counter(), forward_entry_time=0.0, prefill_finished_time=0.0)
    return SimpleNamespace(
        rid="r", last_node=None, sampling_params=SimpleNamespace(custom_params=custom, max_new_tokens=0), kv_hints=None, session_id=None,
        extra_key=None, cache_salt=None, cached_tokens=0, cached_tokens_device=0, cached_tokens_host=0, cached_tokens_storage=0,
        origin_input_ids=array("q", prompt), output_ids=array("q"), finished_reason=None, time_stats=times,
    )
