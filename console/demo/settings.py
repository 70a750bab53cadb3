"""What one demo runs: sizes chosen so that eviction, retirement, host hits and prefetches all happen within a minute."""

import json
import random
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pbkv.errors import PbkvError

#: Context of the served model, tokens (= bytes with the tiny model).
CONTEXT = 2048
#: Device pool, tokens; smaller than what the workflows in flight hold.
DEVICE_TOKENS = 8192
#: Host pool as a multiple of the device pool.
HOST_RATIO = 1.5
#: Workflows in flight.
CONCURRENCY = 4
#: Scale of the think times between calls: longer ones leave the cache idle, and the link with it.
PACE = 1.5
#: Bandwidth the plugin reckons with, bytes per second: at 512 bytes a token about 1,200 tokens per decode step.
LINK_BYTES_PER_S = 64e6
DECODE_STEP_S = 0.01
#: Knobs that differ from their defaults, so that a minute shows what an hour would.
KNOBS: dict[str, float] = {"retire_idle_s": 12.0, "score_snapshot_s": 2.0}
SERVER_NAME = "demo"
#: Where ports are looked for; Linux gives outgoing connections ports from 32768 on.
PORTS = range(20_000, 32_000)
MODEL_NAME = "pbkv-tiny"


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
    workload: str = "hover"
    trace: Path | None = None
    ports: Ports = field(default_factory=Ports.choose)

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

    def plugin_config(self) -> dict[str, Any]:
        """The plugin's settings file."""
        return {
            "server": SERVER_NAME, "events": self.events, "replay": self.replay, "control_url": self.control_url,
            "link_bytes_per_s": LINK_BYTES_PER_S, "decode_step_s": DECODE_STEP_S, "knobs": dict(KNOBS),
        }

    def write_config(self) -> Path:
        """Put the plugin's settings into the run folder."""
        path = self.run_dir / "plugin.json"
        path.write_text(json.dumps(self.plugin_config(), indent=2))
        return path
