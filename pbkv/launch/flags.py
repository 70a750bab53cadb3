"""SGLang's command line, read as far as the pbkv cache is concerned, without importing SGLang."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pbkv.errors import UsageError

#: Fields of SGLang's settings that matter here, in its own spelling, and the flags beside `--field-name` that set them; and the plugin's.
FIELDS: dict[str, tuple[str, ...]] = {
    "attention_backend": (), "config": (), "device": (), "disable_hybrid_swa_memory": (), "disable_radix_cache": (),
    "disaggregation_mode": (), "dllm_algorithm": (), "dp_size": ("--data-parallel-size",), "enable_cache_report": (),
    "enable_flexkv": (), "enable_hierarchical_cache": ("--enable-hicache",), "enable_hisparse": (), "enable_lmcache": (),
    "enable_metrics": (), "enable_session_radix_cache": (), "enable_unified_cache_external_linker": (), "encoder_only": (),
    "grpc_mode": (), "hicache_host_memory_mode": (), "hicache_io_backend": (), "hicache_mem_layout": (), "hicache_ratio": (),
    "hicache_size": (), "hicache_write_policy": (), "host": (), "model_path": ("--model",), "pbkv_config": (), "port": (),
    "pp_size": ("--pipeline-parallel-size",), "radix_cache_backend": (), "smg_grpc_mode": (), "speculative_algorithm": (),
    "tokenizer_worker_num": (), "use_ray": (),
}
_OPTIONS = {option: field for field, more in FIELDS.items() for option in (f"--{field.replace('_', '-')}", *more)}


class Flags:
    """The flags that were given; of a flag given twice the last counts, and a flag counts before SGLang's `--config` file."""

    def __init__(self, argv: Sequence[str]) -> None:
        given = _read(argv)
        file = given.get("config")
        self._given = {**(_read_file(file) if isinstance(file, str) else {}), **given}

    def get(self, field: str) -> Any:
        """Text of the value, True for a flag without one, what a file says, or None when it is not set. `field` is one of FIELDS."""
        if field not in FIELDS:
            raise KeyError(field)
        return self._given.get(field)

    def __contains__(self, field: str) -> bool:
        return self.get(field) is not None


def _read(argv: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for n, word in enumerate(argv):
        if not word.startswith("--"):
            continue
        option, equals, value = word.partition("=")
        field = _field(option)
        if field is not None:
            following = argv[n + 1] if n + 1 < len(argv) else "--"
            given[field] = value if equals else True if following.startswith("--") else following
    return given


def _field(option: str) -> str | None:
    """SGLang takes any beginning of a flag that no other flag shares, such as --tp; one that several share it refuses itself."""
    if option in _OPTIONS or len(option) < 4:
        return _OPTIONS.get(option)
    meant = {field for known, field in _OPTIONS.items() if known.startswith(option)}
    return meant.pop() if len(meant) == 1 else None


def _read_file(path: str) -> dict[str, Any]:
    """SGLang's --config file: YAML, a flag's name without its dashes per line."""
    try:
        import yaml
    except ImportError:
        raise UsageError("--config: reading it needs PyYAML, which comes with sglang; install it, or give the flags themselves") from None
    try:
        data: object = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}; name SGLang's YAML file, or --pbkv-config for PBKV's own") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UsageError(f"--config {path}: expected YAML that maps SGLang's flags to values") from None
    if not isinstance(data, Mapping):
        raise UsageError(f"--config {path}: expected YAML that maps SGLang's flags to values")
    settings = cast(Mapping[Any, Any], data)
    found = {_OPTIONS.get("--" + str(name).replace("_", "-")): value for name, value in settings.items()}
    # A switch that is off in the file is not given.
    return {field: value for field, value in found.items() if field is not None and value is not None and value is not False}
