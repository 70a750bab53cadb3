"""Loads that take their time: the copy to the device happens when somebody waits for it, or when the copy engine gets that far.

On CPU SGLang's copies end inside the call that starts them, so what a batch reads is always there. Here a load does nothing at first: its
slots on the device keep what they held. Waiting for a layer of a load, as a forward pass does through SGLang's own counter, performs the
copies of all loads up to that one, in order, as one stream would.
"""

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.mem_cache.l2_transfer import TransferCompletion

from tests.sglang_cache.harness import LAYERS, Bench


class _Load:
    """One load: how to copy it, and the event that its end is."""

    def __init__(self, copy: Callable[[], Any]) -> None:
        self.copy, self.done = copy, False

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        assert self.done, "somebody waits on the host for a load that is still running"


class _LayerEvent:
    """The event of one layer in one of the three slots that SGLang's counter has for loads."""

    def __init__(self, engine: "SlowLoads") -> None:
        self._engine, self._load = engine, None

    def record(self) -> None:
        self._load = self._engine.newest

    def query(self) -> bool:
        return self._load is None or self._load.done

    def wait(self) -> None:
        if self._load is not None:
            self._engine.finish_up_to(self._load)


class SlowLoads:
    """Takes the place of the copy engine's way to the device in a bench."""

    def __init__(self, bench: Bench) -> None:
        self.bench, controller = bench, bench.cache.cache_controller
        self.running: list[_Load] = []
        self.newest: _Load | None = None
        self._submit = controller.l2_transfer_engine.submit_host_to_device
        controller.l2_transfer_engine.submit_host_to_device = self._slow
        counter = controller.layer_done_counter
        for slot in counter.events:
            slot.load_events = [_LayerEvent(self) for _ in range(LAYERS)]
            slot.wait = lambda layer, slot=slot: slot.load_events[layer].wait()
        self.counter = counter
        bench.pool.register_layer_transfer_counter(counter)

    def _slow(self, transfers: Any, *, transfer_layer_id_max: int, start_event: Any = None, on_layer_done: Any = None) -> Any:
        load = _Load(lambda: self._submit(transfers, transfer_layer_id_max=transfer_layer_id_max, start_event=start_event))
        self.running.append(load)
        self.newest = load
        for layer in range(transfer_layer_id_max):
            on_layer_done(layer)
        return TransferCompletion(load, load, False)

    def finish_up_to(self, load: _Load) -> None:
        """Copy in order until this one is there."""
        while not load.done:
            self.finish_one()

    def finish_one(self) -> None:
        """The oldest load gets there."""
        load = self.running.pop(0)
        load.copy()
        load.done = True

    def read(self, tokens: list[int]) -> bool:
        """What a prefill does with a prefix it finds: load what is on the host, ask what to wait for, read the KV of every layer.
        True = it read the tokens' own.
        """
        bench = self.bench
        found = bench.match(tokens)
        if found.host_hit_length:
            bench.cache.load_back(found.best_match_node)
            found = bench.match(tokens)
        self.counter.set_consumer(bench.cache.ready_to_load_host_cache())
        indices = bench.cache.path_device_indices(found.last_device_node)
        wanted = torch.tensor(tokens[: found.device_prefix_len], dtype=torch.float32)
        right = True
        for layer in range(LAYERS):
            keys, values = bench.pool.get_kv_buffer(layer)
            right &= bool(torch.equal(keys[indices][:, 0, 0], wanted + layer) and torch.equal(values[indices][:, 0, 3], -wanted - layer))
        self.counter.set_consumer(-1)
        return right
