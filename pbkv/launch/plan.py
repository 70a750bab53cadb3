"""What `pbkv serve` sets before SGLang starts, and why. What the caller has set is left as it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pbkv.config import ENV
from pbkv.launch.flags import Flags

_CORE = "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"
_CPU = "SGLANG_USE_CPU_ENGINE"
#: Flags by which a host tier is asked for.
_HOST_TIER = ("hicache_ratio", "hicache_size", "hicache_write_policy", "enable_hierarchical_cache")


@dataclass(frozen=True)
class Setting:
    """One thing that is set: flags and their values, or an environment variable; `why` is for a person."""

    why: str
    flags: tuple[str, ...] = ()
    variable: str = ""
    value: str = ""

    @property
    def text(self) -> str:
        return f"{self.variable}={self.value}" if self.variable else " ".join(self.flags)


@dataclass(frozen=True)
class Plan:
    """SGLang's arguments and what is added to its environment; `notes` are what the caller may want to know beside."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    settings: tuple[Setting, ...]
    notes: tuple[str, ...]


def make_plan(argv: Sequence[str], flags: Flags, environ: Mapping[str, str], settings_file: str | None) -> Plan:
    """`flags` are those of `argv`; `settings_file` is PBKV's own, as an absolute path."""
    settings = [*_always(flags, environ), *_host_tier(flags), *_cpu(flags, environ)]
    if settings_file is not None:
        settings.append(Setting("PBKV's own settings: every process of the server reads them", variable=ENV, value=settings_file))
    ours = [word for setting in settings for word in setting.flags]
    # The caller's come last: of a flag given twice SGLang takes the last one.
    return Plan((*ours, *argv), {s.variable: s.value for s in settings if s.variable}, tuple(settings), tuple(_notes(flags)))


def _always(flags: Flags, environ: Mapping[str, str]) -> list[Setting]:
    wanted = [Setting("the cache that predicts", ("--radix-cache-backend", "pbkv"))] if "radix_cache_backend" not in flags else []
    if not environ.get(_CORE):
        wanted.append(Setting("the Rust core's eviction policies are compiled in", variable=_CORE, value="python"))
    if "enable_metrics" not in flags:
        wanted.append(Setting("GET /metrics, for Prometheus", ("--enable-metrics",)))
    if "enable_cache_report" not in flags:
        wanted.append(Setting("answers say how much of a prompt was cached", ("--enable-cache-report",)))
    return wanted


def _has_host_tier(flags: Flags) -> bool:
    return any(field in flags for field in _HOST_TIER)


def _host_tier(flags: Flags) -> list[Setting]:
    if not _has_host_tier(flags) or "enable_hierarchical_cache" in flags:
        return []
    return [Setting("a host tier was asked for", ("--enable-hierarchical-cache",))]


def _cpu(flags: Flags, environ: Mapping[str, str]) -> list[Setting]:
    if flags.get("device") != "cpu":
        return []
    wanted = [] if environ.get(_CPU) else [Setting("SGLang runs on a CPU only when told so", variable=_CPU, value="1")]
    if _has_host_tier(flags):
        for field, value in (("hicache_io_backend", "direct"), ("hicache_mem_layout", "layer_first")):
            if field not in flags:
                wanted.append(Setting("copies between the tiers without a GPU", (f"--{field.replace('_', '-')}", value)))
    return wanted


def _notes(flags: Flags) -> list[str]:
    if _has_host_tier(flags):
        return []
    return ["there is no host tier, so nothing can be brought back: --hicache-ratio 2 gives one twice the size of the device's"]
