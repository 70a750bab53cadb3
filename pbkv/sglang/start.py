"""May this server start? Asked when SGLang has resolved its flags, before any other process is made, and where a cache is built."""

import os
from typing import Any

from sglang.srt.arg_groups.model_override_base import model_config_of, resolving_view
from sglang.srt.mem_cache.kv_cache_builder import uses_ssm_state

from pbkv.launch.kinds import RECURRENT, SLIDING
from pbkv.launch.limits import conflict

#: Names SGLang takes for "no model": nothing is loaded.
_NO_MODEL = ("none", "dummy")


def server_problem(server_args: Any) -> str | None:
    """Why a server with these resolved settings cannot run with the pbkv cache, or None; None too when it was not asked to."""
    settings = resolving_view(server_args)
    if settings.radix_cache_backend != "pbkv":
        return None
    problem = settings_problem(server_args)
    if problem or str(settings.model_path).lower() in _NO_MODEL:
        return problem
    model = model_config_of(server_args)
    return model_problem(sliding=bool(model.is_hybrid_swa), recurrent=bool(uses_ssm_state(model)), name=str(settings.model_path))


def settings_problem(server_args: Any) -> str | None:
    """The first setting of SGLang, or of its environment, that does not go with the cache."""
    settings = resolving_view(server_args)
    return conflict(lambda field: getattr(settings, field, None), os.environ)


def model_problem(*, sliding: bool, recurrent: bool, name: str) -> str | None:
    """Why a model of this kind cannot be served, or None."""
    why = RECURRENT if recurrent else SLIDING if sliding else None
    return f"--model-path {name}: this kind of model {why}" if why else None
