"""The engines a demo can run, and the commands of everything around them."""

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pbkv.errors import PbkvError

if TYPE_CHECKING:
    from console.demo.settings import Settings

#: The first is the default.
ENGINES = ("embedded", "sglang")
Command = tuple[list[str], dict[str, str] | None]


def check_engine(name: str) -> None:
    """Raise PbkvError when what the engine needs is not installed."""
    if name == "sglang" and (find_spec("pbkv_sglang_cpu") is None or find_spec("sglang") is None):
        raise PbkvError("demo: SGLang for CPU is not installed; run `make install` in the source tree and use .venv/bin/pbkv")


def engine_command(settings: "Settings") -> Command:
    """Command and environment of the engine (None = ours)."""
    return {"embedded": _embedded, "sglang": _sglang}[settings.engine](settings)


def _embedded(settings: "Settings") -> Command:
    sizes = settings.sizes
    return pbkv(
        "serve", "--embedded", "--port", str(settings.ports.http), "--config", str(settings.write_config()),
        "--device-tokens", str(sizes.device_tokens), "--host-tokens", str(sizes.host_tokens), "--context-length", str(sizes.context),
    ), None


def _sglang(settings: "Settings") -> Command:
    from pbkv_sglang_cpu.launch import server_command

    sizes = settings.sizes
    return server_command(
        settings.model_dir, settings.ports.http, plugin=True, config=settings.write_config(), max_total_tokens=sizes.device_tokens,
        hicache_ratio=sizes.host_tokens / sizes.device_tokens, context_length=sizes.context,
        extra=("--served-model-name", settings.model_name),
    )


def model_command(settings: "Settings") -> list[str]:
    """Command that makes SGLang's model where it is missing, in a process of its own: it needs torch, which has no place in the one that
    will draw screens.
    """
    return [sys.executable, "-m", "pbkv_sglang_cpu.model", str(settings.model_dir)]


def collector_command(settings: "Settings") -> list[str]:
    """Command of the collector."""
    return pbkv(
        "collect", "--connect", f"{settings.events},{settings.replay}", "--db", str(settings.database),
        "--listen", f"127.0.0.1:{settings.ports.flight}",
    )


def driver_command(settings: "Settings") -> list[str]:
    """Command of the load."""
    sizes = settings.sizes
    load = ["--trace", str(settings.trace)] if settings.trace else ["--workload", settings.workload]
    return [
        sys.executable, "-m", "console.demo.driver", "--url", settings.control_url, "--model", settings.model_name, *load,
        "--concurrency", str(settings.concurrency), "--limit", str(sizes.context - 64), "--pace", str(sizes.pace),
    ]


def pbkv(*args: str) -> list[str]:
    """A `pbkv` command line run by this very Python."""
    return [sys.executable, "-m", "console.main", *args]
