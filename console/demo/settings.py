"""What one demo runs: sizes chosen so that eviction, retirement, host hits and prefetches all happen within a minute."""

import json
import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pbkv.errors import PbkvError


@dataclass(frozen=True)
class Sizes:
    """How large one engine's demo is. Tokens are bytes of text with both engines.

    `context`: longest prompt with its reply. `device_tokens` is less than the workflows in flight hold, `host_tokens` holds what they evict
    for a while. `concurrency`: workflows in flight, by workload, so that each fills the tiers about as much. `pace` scales the think times
    between calls: longer ones leave the cache idle, and the link with it.
    """

    context: int
    device_tokens: int
    host_tokens: int
    concurrency: Mapping[str, int]
    pace: float


#: Stands for a recorded trace among the workloads.
TRACE = "trace"
SIZES = {
    "embedded": Sizes(
        context=4096, device_tokens=16_384, host_tokens=32_768, pace=1.5,
        concurrency={"hover": 16, "swebench": 10, "financebench": 13, TRACE: 5},
    ),
    "sglang": Sizes(
        context=2048, device_tokens=8192, host_tokens=12_288, pace=1.5,
        concurrency={"hover": 4, "swebench": 4, "financebench": 4, TRACE: 4},
    ),
}
#: What the plugin on SGLang reckons with, bytes per second and seconds: at 512 bytes a token about 1,200 tokens per decode step.
SGLANG_LINK = {"link_bytes_per_s": 64e6, "decode_step_s": 0.01}
#: Knobs that differ from their defaults, so that a minute shows what an hour would.
KNOBS: dict[str, float] = {"retire_idle_s": 12.0, "score_snapshot_s": 2.0}
SERVER_NAME = "demo"
#: Where ports are looked for; Linux gives outgoing connections ports from 32768 on.
PORTS = range(20_000, 32_000)
MODELS = {"embedded": "qwen3-14b@h100", "sglang": "pbkv-tiny"}


def free_ports(count: int) -> list[int]:
    """Different TCP ports of 127.0.0.1, free a moment ago and below the range the system gives to outgoing connections: a server may take
    a minute until it binds its port, and any connection made meanwhile could have been given an ephemeral one.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise PbkvError(f"demo: fewer than {count} free ports from {PORTS.start} to {PORTS.stop - 1}; end what holds them")


@dataclass(frozen=True)
class Ports:
    """TCP ports of 127.0.0.1, free when they were chosen."""

    http: int
    events: int
    replay: int
    flight: int
    web: int

    @classmethod
    def choose(cls) -> "Ports":
        return cls(*free_ports(5))


@dataclass(frozen=True)
class Settings:
    """One demo: `run_dir` takes logs and configuration, `state_dir` what outlives it: the model and the collector's token."""

    run_dir: Path
    state_dir: Path
    database: Path
    engine: str = "embedded"
    workload: str = "hover"
    trace: Path | None = None
    ports: Ports = field(default_factory=Ports.choose)

    @property
    def sizes(self) -> Sizes:
        return SIZES[self.engine]

    @property
    def concurrency(self) -> int:
        """Workflows in flight."""
        return self.sizes.concurrency[TRACE if self.trace else self.workload]

    @property
    def model_name(self) -> str:
        return MODELS[self.engine]

    @property
    def model_dir(self) -> Path:
        return self.state_dir / "tiny-model"

    @property
    def control_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.http}"

    @property
    def source(self) -> str:
        """What `pbkv top`, `web` and `query` are given."""
        return f"grpc://127.0.0.1:{self.ports.flight}"

    @property
    def events(self) -> str:
        return f"tcp://127.0.0.1:{self.ports.events}"

    @property
    def replay(self) -> str:
        return f"tcp://127.0.0.1:{self.ports.replay}"

    def config(self) -> dict[str, Any]:
        """The engine's settings file."""
        config = {
            "server": SERVER_NAME, "events": self.events, "replay": self.replay, "control_url": self.control_url, "knobs": dict(KNOBS),
        }
        return {**config, **SGLANG_LINK} if self.engine == "sglang" else config

    def write_config(self) -> Path:
        """Put the engine's settings into the run folder."""
        path = self.run_dir / "pbkv.json"
        path.write_text(json.dumps(self.config(), indent=2))
        return path
