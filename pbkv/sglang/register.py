"""The entry point SGLang calls in every process. Registers the cache backend and the hooks, or says in one sentence why it cannot."""

import functools
import itertools
import multiprocessing
import sys
from typing import Any

from pbkv.errors import UsageError
from pbkv.identity import session_workflow
from pbkv.sglang import compat
from pbkv.sglang.settings import add_flag, check_settings
from pbkv.sglang.settings import stop as _stop

_FLAG = "--radix-cache-backend"


def register() -> None:
    """Called by SGLang. When the pbkv cache was asked for and does not fit, the process ends: SGLang would only log the error and
    serve with another cache, or with half of the hooks.
    """
    reason = compat.problem()
    if reason is None:
        if _selected(sys.argv) and _is_main():
            check_settings()
        _install()
    elif _selected(sys.argv):
        _stop(reason)
    elif not reason.startswith("sglang is not installed"):
        _register_refusal(reason)


def _selected(argv: list[str]) -> bool:
    return f"{_FLAG}=pbkv" in argv or any(pair == (_FLAG, "pbkv") for pair in itertools.pairwise(argv))


def _register_refusal(reason: str) -> None:
    """Chosen through the Python API: refuse when the cache is built. SGLang too old or new to have the registry needs no refusal."""
    try:
        from sglang.srt.mem_cache.registry import register_radix_cache_backend
    except ImportError:
        return
    register_radix_cache_backend("pbkv", lambda ctx: _stop(reason))


def _install() -> None:
    from sglang.srt.managers import io_struct, tokenizer_control_mixin
    from sglang.srt.mem_cache.registry import register_radix_cache_backend
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from pbkv.sglang.control import PbkvCommandOutput, PbkvCommandReq

    register_radix_cache_backend("pbkv", _factory)
    io_struct.hook_custom_types(PbkvCommandReq, PbkvCommandOutput)
    specs: list[Any] = tokenizer_control_mixin._COMMUNICATOR_SPECS  # pyright: ignore[reportPrivateUsage]
    specs.append(("pbkv_command", PbkvCommandOutput))
    scheduler, manager = "sglang.srt.managers.scheduler.Scheduler", "sglang.srt.managers.tokenizer_manager.TokenizerManager"
    hooks = (
        (f"{scheduler}.get_next_batch_to_run", _after_plan, HookType.AFTER),
        (f"{scheduler}.process_batch_result", _after_result, HookType.AFTER),
        (f"{scheduler}._add_request_to_queue", _after_queued, HookType.AFTER),
        (f"{scheduler}.send_abort_output", _after_abort, HookType.AFTER),
        (f"{scheduler}.close_session", _after_close_session, HookType.AFTER),
        (f"{scheduler}.init_request_dispatcher", _after_init_dispatcher, HookType.AFTER),
        (f"{manager}._create_tokenized_object", _before_tokenized, HookType.BEFORE),
        (f"{manager}.auto_create_handle_loop", _after_handle_loop, HookType.AFTER),
    )
    for target, hook, kind in hooks:
        HookRegistry.register(target, hook, kind)
    if _is_main():
        HookRegistry.register("sglang.srt.server_args.ServerArgs.add_cli_args", _after_flags, HookType.AFTER)
        HookRegistry.register("sglang.srt.entrypoints.http_server._setup_and_run_http_server", _before_http, HookType.BEFORE)
        HookRegistry.register("sglang.srt.server_args.ServerArgs.resolve_once", _after_resolve, HookType.AFTER)


def _is_main() -> bool:
    return multiprocessing.current_process().name == "MainProcess"


def _after_flags(result: Any, parser: Any) -> None:
    add_flag(parser)


def _factory(ctx: Any) -> Any:
    from sglang.srt.runtime_context import get_parallel

    from pbkv.config import load_config
    from pbkv.sglang.cache import make_cache
    from pbkv.sglang.start import model_problem, settings_problem

    args = ctx.server_args
    kind = model_problem(sliding=bool(ctx.is_hybrid_swa), recurrent=bool(ctx.is_hybrid_ssm), name=str(args.model_path))
    if problem := settings_problem(args) or kind:
        _stop(problem)
    try:
        return make_cache(ctx, load_config(), int(get_parallel().dp_rank or 0))
    except UsageError as error:
        _stop(str(error))


def _after_resolve(result: Any, server_args: Any) -> None:
    from pbkv.sglang.start import server_problem

    if problem := server_problem(server_args):
        _stop(problem)


def _runtime(scheduler: Any) -> Any:
    return getattr(scheduler.tree_cache, "runtime", None)


def _after_plan(plan: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
    runtime = _runtime(scheduler)
    if runtime is not None:
        runtime.turn(scheduler, plan.batch_to_run)


def _after_result(result: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
    runtime = _runtime(scheduler)
    if runtime is not None:
        runtime.guard.run(runtime.settle)


def _after_queued(result: Any, scheduler: Any, req: Any, *args: Any, **kwargs: Any) -> None:
    runtime = _runtime(scheduler)
    if runtime is not None:
        runtime.guard.run(runtime.calls.queued, req)


def _after_abort(result: Any, scheduler: Any, abort_req: Any, req: Any) -> None:
    runtime = _runtime(scheduler)
    if runtime is not None:
        runtime.guard.run(runtime.calls.dropped, req)


def _after_close_session(result: Any, scheduler: Any, recv_req: Any) -> None:
    runtime = _runtime(scheduler)
    if runtime is not None:
        runtime.guard.run(_close_session, runtime, recv_req.session_id)


def _close_session(runtime: Any, session_id: str) -> None:
    runtime.close(session_workflow(session_id))


def _after_init_dispatcher(result: Any, scheduler: Any) -> None:
    from sglang.utils import TypeBasedDispatcher

    from pbkv.sglang.control import PbkvCommandReq, handle

    runtime = _runtime(scheduler)
    if runtime is not None:
        scheduler._request_dispatcher += TypeBasedDispatcher([(PbkvCommandReq, functools.partial(handle, runtime))])


@functools.cache
def _chosen() -> bool:
    from sglang.srt.runtime_context import get_memory

    return get_memory().radix_cache_backend == "pbkv"


def _before_tokenized(manager: Any, obj: Any, *args: Any, **kwargs: Any) -> None:
    if _chosen():
        from pbkv.sglang.arrivals import adopt_identity
        from pbkv.sglang.http import clean_identity

        clean_identity(obj)
        adopt_identity(obj)


def _after_handle_loop(result: Any, manager: Any) -> None:
    if _chosen():
        from pbkv.sglang.http import start_clock

        start_clock(manager)


def _before_http(server_args: Any, tokenizer_manager: Any, *args: Any, **kwargs: Any) -> None:
    if not _chosen():
        return
    from sglang.srt.entrypoints.http_server import app

    from pbkv.config import load_config
    from pbkv.sglang.http import mount

    try:
        mount(app, tokenizer_manager, load_config(), str(server_args.host))
    except UsageError as error:
        _stop(str(error))
