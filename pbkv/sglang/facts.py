"""What a SGLang server is, as text for the event log, under the names that the embedded engine uses."""

from typing import TYPE_CHECKING, Any

from pbkv.engine.facts import serving_facts

if TYPE_CHECKING:
    from pbkv.sglang.runtime import Runtime


def server_facts(runtime: "Runtime", scheduler: Any) -> dict[str, str]:
    """Sizes in tokens, rules, the link's rate, and the knobs as they are now. Step times are not known: a reader fits them."""
    cache, controller = runtime.cache, runtime.cache.cache_controller
    facts: dict[str, object] = {
        "page_size": cache.page_size, "device_tokens": int(cache.token_to_kv_pool_allocator.size),
        "host_tokens": 0 if controller is None else int(controller.mem_pool_host.size), "timing": "measured",
        "overlap": int(bool(getattr(scheduler, "enable_overlap", False))),
        "timing.bytes_per_token": runtime.bytes_per_token, "timing.link_bytes_per_s": runtime.config.link_bytes_per_s,
    }
    if controller is not None:
        facts["write_policy"] = controller.write_policy
    # Without chunks a prefill step is bounded by max_prefill_tokens alone.
    for name, attributes in (("max_running", ("max_running_requests",)), ("chunk_tokens", ("chunked_prefill_size", "max_prefill_tokens"))):
        found = [value for each in attributes if (value := getattr(scheduler, each, None))]
        if found:
            facts[name] = int(found[0])
    return {name: str(value) for name, value in facts.items()} | serving_facts(runtime.knobs, runtime.predictor)
