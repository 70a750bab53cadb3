"""GET /metrics: SGLang's names where they mean the same, PBKV's own for the rest. Seconds are engine seconds."""

from pbkv.engine.engine import Engine
from pbkv.engine.requests import Finished
from pbkv.engine.server.metrics import SECONDS, TOKEN_SECONDS, Metrics
from pbkv.events.stream import EventStream


class Meters:
    """Counts ended calls; everything else is read from the engine when asked for."""

    def __init__(self, engine: Engine, stream: EventStream | None, model: str) -> None:
        self._engine = engine
        self._requests = self._aborted = self._prompt = self._generated = self._device = self._host = 0
        self._metrics = Metrics(model_name=model, engine_type="embedded")
        seconds = self._metrics.histogram
        self._ttft = seconds("sglang:time_to_first_token_seconds", "Time to first token.", SECONDS)
        self._e2e = seconds("sglang:e2e_request_latency_seconds", "Arrival to last token.", SECONDS)
        self._queue = seconds("sglang:queue_time_seconds", "Arrival to admission.", SECONDS)
        self._token = seconds("sglang:inter_token_latency_seconds", "Time between two tokens, mean of a call.", TOKEN_SECONDS)
        self._count_calls()
        self._read_tiers(engine)
        self._read_manager(engine, stream)

    def _count_calls(self) -> None:
        number, family = self._metrics.number, self._metrics.family
        number("sglang:num_requests_total", "counter", "Requests processed.", lambda: self._requests)
        number("sglang:num_aborted_requests_total", "counter", "Requests aborted.", lambda: self._aborted)
        number("sglang:prompt_tokens_total", "counter", "Prompt tokens processed.", lambda: self._prompt)
        number("sglang:generation_tokens_total", "counter", "Tokens generated.", lambda: self._generated)
        family("sglang:cached_tokens_total", "counter", "Cached prompt tokens by source.", lambda: {
            'cache_source="device"': self._device, 'cache_source="host"': self._host, 'cache_source="total"': self._device + self._host,
        })

    def _read_tiers(self, engine: Engine) -> None:
        page, gauge = engine.settings.page_size, "gauge"
        number = self._metrics.number
        number("sglang:max_total_num_tokens", gauge, "Size of the device tier.", lambda: engine.tree.device.size * page)
        number("sglang:kv_available_tokens", gauge, "Free tokens of the device tier.", lambda: engine.tree.device.free * page)
        number("sglang:kv_evictable_tokens", gauge, "Evictable tokens of the device tier.", lambda: engine.tree.device.cached * page)
        number("sglang:num_used_tokens", gauge, "Tokens of running calls and copies.", lambda: self._used(engine))
        number("sglang:token_usage", gauge, "Share of the device tier that running calls and copies use.", lambda: self._usage(engine))
        number("sglang:hicache_host_total_tokens", gauge, "Size of the host tier.", lambda: engine.tree.host.size * page)
        number("sglang:hicache_host_used_tokens", gauge, "Used tokens of the host tier.", lambda: engine.tree.host.used * page)
        number("sglang:num_running_reqs", gauge, "Running requests.", lambda: engine.running)
        number("sglang:num_queue_reqs", gauge, "Waiting requests.", lambda: engine.waiting)
        number("sglang:cache_hit_rate", gauge, "Share of all prompt tokens found cached.", self._hit_rate)

    def _read_manager(self, engine: Engine, stream: EventStream | None) -> None:
        number, family, counts = self._metrics.number, self._metrics.family, engine.manager.counts
        copies, per_token = engine.copies, engine.timing.bytes_per_token
        number("sglang:evicted_tokens_total", "counter", "Tokens evicted from the device tier.", lambda: counts["evicted_tokens"])
        family("sglang:load_back_tokens_total", "counter", "Tokens loaded back from the host tier.", lambda: {
            'pool="kv"': copies.load_bytes // per_token,
        })
        family("sglang:hicache_backup_tokens_total", "counter", "Tokens copied to the host tier.", lambda: {
            'pool="kv"': copies.backup_bytes // per_token,
        })
        number("sglang:num_retracted_requests_total", "counter", "Requests retracted.", lambda: engine.retractions)
        for name in ("calls", "unattributed", "malformed", "retired_workflows", "prefetches_issued"):
            number(f"pbkv:{name}_total", "counter", f"PBKV's count of {name.replace('_', ' ')}.", lambda name=name: counts[name])
        number("pbkv:live_workflows", "gauge", "Live workflows.", lambda: len(engine.manager.state.live))
        number("pbkv:knob_version", "gauge", "Version of the knobs in force.", lambda: engine.knobs.version)
        number("pbkv:event_messages_dropped_total", "counter", "Event messages dropped.", lambda: stream.writer.dropped if stream else 0)

    def _used(self, engine: Engine) -> int:
        device = engine.tree.device
        return (device.locked + device.held) * engine.settings.page_size

    def _usage(self, engine: Engine) -> float:
        return self._used(engine) / (engine.tree.device.size * engine.settings.page_size)

    def _hit_rate(self) -> float:
        return (self._device + self._host) / self._prompt if self._prompt else 0.0

    def left(self) -> None:
        """A client left before its call ended."""
        self._aborted += 1

    def ended(self, done: Finished) -> None:
        """A call has ended; one that the engine aborted has no first token to speak of."""
        self._requests += 1
        if done.aborted:
            self._aborted += 1
            return
        self._prompt += done.request.prompt_tokens
        self._generated += done.output_tokens
        self._device += done.device_hit
        self._host += done.host_hit
        self._ttft.observe(done.first_token - done.arrived)
        self._e2e.observe(done.ended - done.arrived)
        self._queue.observe(done.admitted - done.arrived)
        if done.output_tokens > 1:
            self._token.observe((done.ended - done.first_token) / (done.output_tokens - 1))

    def text(self) -> str:
        """The exposition."""
        return self._metrics.text()
