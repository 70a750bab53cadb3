"""What `pbkv serve --embedded` is started with, checked before anything listens."""

import math
from dataclasses import dataclass, replace

from pbkv.config import ServerConfig, load_config
from pbkv.control.access import require_token
from pbkv.engine.settings import EngineSettings
from pbkv.errors import UsageError
from pbkv.knobs import KNOBS

#: Requests that may wait or run at once; more are refused with 503.
MAX_PENDING = 1024
#: Longest context that can be asked for, tokens: it is kept as bytes while a request runs.
MAX_CONTEXT = 1 << 20
#: A decode step that the default prefetch budget is made for: calls, and their context in tokens.
_TYPICAL_CALLS, _TYPICAL_CONTEXT = 16, 16 * 4096


@dataclass(frozen=True)
class ServeSettings:
    """A server's address, its engine, and the settings it shares with the plugin. `speed`: engine seconds per second of the clock."""

    host: str
    port: int
    model: str
    context: int
    speed: float
    engine: EngineSettings
    config: ServerConfig
    max_pending: int = MAX_PENDING

    def __post_init__(self) -> None:
        _check("--speed", self.speed, 0.001, 1000)
        _check("--context-length", self.context, 1, MAX_CONTEXT)
        require_token(self.host, self.config.token(), "--config")


def _check(name: str, value: float, least: float, most: float) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        raise UsageError(f"{name} {value:g}: expected {least:g} to {most:g}")


def embedded_config(path: str | None, engine: EngineSettings, policy: str | None) -> ServerConfig:
    """The settings file for an embedded engine: link and decode step are those of its timing, `policy` goes before the file's.

    Raises UsageError.
    """
    timing = engine.timing
    config = load_config(path, server="embedded")
    knobs = config.knobs if policy is None else {**config.knobs, "policy": KNOBS["policy"].parse(policy)}
    step = timing.decode_s(_TYPICAL_CALLS, _TYPICAL_CONTEXT)
    return replace(config, link_bytes_per_s=timing.link_bytes_per_s, decode_step_s=step, knobs=knobs)
