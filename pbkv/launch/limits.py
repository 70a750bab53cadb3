"""What does not go together with the pbkv cache. One table, read before SGLang is started and again by the plugin in the server itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Get = Callable[[str], Any]


@dataclass(frozen=True)
class Limit:
    """A setting of SGLang (`field` of its settings) whose value `clashes`; `why` ends in what to do."""

    field: str
    clashes: Callable[[Any], bool]
    why: str


def _set(value: Any) -> bool:
    return value is not None and value is not False and str(value).lower() not in ("null", "none", "false", "")


def _several(value: Any) -> bool:
    try:
        return int(value) > 1
    except (TypeError, ValueError):
        return False


LIMITS = (
    Limit("radix_cache_backend", lambda v: _set(v) and v != "pbkv", "names another cache; remove it, or start SGLang by its own command"),
    Limit("disable_radix_cache", _set, "leaves no cache to manage; remove it"),
    Limit("enable_session_radix_cache", _set, "orders victims its own way; remove it (the knob policy=session_lae gives that order)"),
    Limit("enable_lmcache", _set, "is another cache; remove it, and give --hicache-ratio for a host tier"),
    Limit("enable_flexkv", _set, "is another cache; remove it, and give --hicache-ratio for a host tier"),
    Limit("enable_unified_cache_external_linker", _set, "has no host tier that could be ordered; remove it, and give --hicache-ratio"),
    Limit("enable_hisparse", _set, "moves KV between the tiers by itself; remove it"),
    Limit("hicache_host_memory_mode", lambda v: v == "buffer_only", "keeps nothing in host memory; remove it"),
    Limit("disaggregation_mode", _set, "splits prefill from decode, which pbkv was never run with; remove it"),
    Limit("speculative_algorithm", _set, "drafts tokens, which pbkv was never run with; remove it"),
    Limit("dllm_algorithm", _set, "decodes by diffusion, which pbkv was never run with; remove it"),
    Limit("pp_size", _several, "gives every stage a cache of its own, which pbkv was never run with; use tensor parallelism"),
    Limit("tokenizer_worker_num", _several, "makes web server processes that SGLang loads no plugins into; leave it at 1"),
    Limit("smg_grpc_mode", _set, "has no HTTP server for /pbkv; remove it"),
    Limit("grpc_mode", _set, "has no HTTP server for /pbkv; remove it"),
    Limit("encoder_only", _set, "has no KV cache to manage; remove it"),
    Limit("use_ray", _set, "starts schedulers that pbkv was never run in; remove it"),
)
#: Environment variables of SGLang that decide the same things: values in lower case that clash, and why.
ENVIRONMENT = {
    "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": (("rust",), "has its eviction policies compiled in; unset it, or set it to python"),
    "SGLANG_RUST_SERVER": (("1", "true", "yes", "y", "t", "on"), "serves without the Python process /pbkv lives in; unset it"),
}


def conflict(get: Get, environ: Mapping[str, str]) -> str | None:
    """The first setting that cannot work with the pbkv cache, as a sentence, or None. `get` gives a field's value, None when not set."""
    for limit in LIMITS:
        value = get(limit.field)
        if limit.clashes(value):
            return f"--{limit.field.replace('_', '-')}{_shown(value)} does not go with the pbkv cache: it {limit.why}"
    for name, (values, why) in ENVIRONMENT.items():
        if (value := environ.get(name, "").strip().lower()) in values:
            return f"{name}={value} does not go with the pbkv cache: it {why}"
    return None


def plugin_left_out(environ: Mapping[str, str]) -> str | None:
    """A sentence when SGLang is told to load other plugins alone."""
    chosen = environ.get("SGLANG_PLUGINS", "")
    if not chosen.strip() or "pbkv" in [name.strip() for name in chosen.split(",")]:
        return None
    return f"SGLANG_PLUGINS={chosen[:60]!r} leaves the plugin out: add pbkv to it, or unset it"


def _shown(value: Any) -> str:
    return "" if value is True else f" {str(value)[:60]}"
