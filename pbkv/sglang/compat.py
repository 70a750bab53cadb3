"""Is this SGLang the one the plugin was written for? Checked before anything is hooked, because SGLang only logs plugin errors."""

import inspect
import pkgutil
from importlib.metadata import PackageNotFoundError, version

REQUIRED = "0.5.23"

#: Everything of SGLang the plugin hooks or overrides, with the parameters it relies on.
TARGETS: dict[str, tuple[str, ...]] = {
    "sglang.srt.plugins.hook_registry.HookRegistry.register": ("target", "hook", "hook_type"),
    "sglang.srt.server_args.ServerArgs.resolve_once": (),
    "sglang.srt.arg_groups.model_override_base.resolving_view": ("server_args",),
    "sglang.srt.arg_groups.model_override_base.model_config_of": ("server_args",),
    "sglang.srt.mem_cache.kv_cache_builder.uses_ssm_state": ("model_config",),
    "sglang.srt.mem_cache.registry.register_radix_cache_backend": ("name", "factory"),
    "sglang.srt.mem_cache.registry.create_unified_radix_cache": ("ctx", "cache_class"),
    "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.checkpoint_into_tree": ("req", "up_to"),
    "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.on_release": ("req", "checkpointed"),
    "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.ready_to_load_host_cache": (),
    "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.loading_check": ("finish_count",),
    "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.load_back": ("node_id", "mem_quota"),
    "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.reset": (),
    "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.evict": ("params",),
    "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache._execute_kv_backup": ("node_id", "device_value", "comp_xfers"),
    "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.has_free_load_back_slot": (),
    "sglang.srt.mem_cache.unified_cache.unified_tree_core.UnifiedTreeCore._unregister_node": ("node",),
    "sglang.srt.mem_cache.unified_cache.unified_tree_core.UnifiedTreeCore._evict_host_leaf": ("node", "tracker"),
    "sglang.srt.mem_cache.unified_cache.components.FullComponent.redistribute_on_node_split": ("new_parent", "child"),
    "sglang.srt.mem_cache.unified_cache.components.FullComponent._evict_device_start": ("request_cnt",),
    "sglang.srt.mem_cache.unified_cache.components.FullComponent._evict_device_next_node": ("tracker",),
    "sglang.srt.mem_cache.unified_cache.components.FullComponent._evict_device_end": (),
    "sglang.srt.mem_cache.unified_cache.components.FullComponent.drive_host_eviction": ("num_tokens", "tracker"),
    "sglang.srt.managers.scheduler.Scheduler.get_next_batch_to_run": ("running_batch", "last_batch"),
    "sglang.srt.managers.scheduler.Scheduler.process_batch_result": ("batch", "result"),
    "sglang.srt.managers.scheduler.Scheduler._add_request_to_queue": ("req",),
    "sglang.srt.model_executor.model_runner.ModelRunner.sample": ("logits_output", "forward_batch"),
    "sglang.srt.managers.auxiliary_output.append_auxiliary_output": ("current", "output"),
    "sglang.srt.managers.scheduler.Scheduler.send_abort_output": ("abort_req", "req"),
    "sglang.srt.mem_cache.common._req_radix_key": ("tree_cache", "req", "token_ids"),
    "sglang.srt.managers.scheduler.Scheduler.close_session": ("recv_req",),
    "sglang.srt.managers.scheduler.Scheduler.init_request_dispatcher": (),
    "sglang.srt.managers.tokenizer_manager.TokenizerManager._create_tokenized_object": ("obj",),
    "sglang.srt.managers.tokenizer_manager.TokenizerManager.auto_create_handle_loop": (),
    "sglang.srt.managers.io_struct.hook_custom_types": (),
    "sglang.srt.managers.tokenizer_control_mixin._COMMUNICATOR_SPECS": (),
    "sglang.srt.server_args.ServerArgs.add_cli_args": ("parser",),
    "sglang.srt.entrypoints.http_server._setup_and_run_http_server": ("server_args",),
}


def version_problem() -> str | None:
    """A sentence when SGLang is missing or another version, or None. Imports nothing of SGLang."""
    try:
        found = version("sglang")
    except PackageNotFoundError:
        return f"sglang is not installed; install sglang=={REQUIRED}"
    if found != REQUIRED:
        remedy = f"install sglang=={REQUIRED} or start without --radix-cache-backend pbkv"
        return f"sglang {found} is installed; this plugin is written for {REQUIRED}: {remedy}"
    return None


def problem() -> str | None:
    """A sentence naming what does not fit, or None."""
    if wrong := version_problem():
        return wrong
    for target, parameters in TARGETS.items():
        missing = _missing(target, parameters)
        if missing:
            return f"sglang {REQUIRED} has no {missing}; its source was changed: reinstall sglang=={REQUIRED}"
    return None


def _missing(target: str, parameters: tuple[str, ...]) -> str | None:
    try:
        found = pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError):
        return target
    if not parameters:
        return None
    names = inspect.signature(found).parameters
    return next((f"parameter {p} of {target}" for p in parameters if p not in names), None)
