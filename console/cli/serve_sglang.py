"""`pbkv serve -- SGLANG FLAGS`: checks what would fail late, says what it sets and why, and becomes the server."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn

from pbkv.config import ServerConfig, load_config
from pbkv.control.access import require_token
from pbkv.errors import UsageError
from pbkv.launch.flags import Flags
from pbkv.launch.kinds import read_config, unsupported
from pbkv.launch.limits import conflict, plugin_left_out
from pbkv.launch.plan import Plan, make_plan
from pbkv.launch.ports import check_endpoints, check_http
from pbkv.sglang import compat

_GROUP = "sglang.srt.plugins"


def start(argv: Sequence[str], settings_file: str | None, *, dry_run: bool) -> None:
    """Replace this process by SGLang's server, so that signals reach it and its exit status is ours; `dry_run` prints the command instead.

    Raises UsageError for what cannot work.
    """
    flags, environ = Flags(argv), os.environ
    _check_sglang(environ)
    _check_flags(flags, environ)
    config = load_config(flags.get("pbkv_config") or settings_file)
    _check_addresses(flags, config)
    plan = make_plan(argv, flags, environ, str(Path(settings_file).resolve()) if settings_file else None)
    _explain(plan)
    command = [sys.executable, "-m", "sglang.launch_server", *plan.arguments]
    if dry_run:
        print(" ".join([*(f"{name}={shlex.quote(value)}" for name, value in plan.environment.items()), shlex.join(command)]))
        return
    _become(command, {**environ, **plan.environment})


def _check_sglang(environ: Mapping[str, str]) -> None:
    problem = compat.version_problem() or plugin_left_out(environ)
    if problem is None and not any(point.name == "pbkv" for point in entry_points(group=_GROUP)):
        problem = "pbkv is not installed where SGLang looks for plugins; pip install it into the environment of this Python"
    if problem:
        raise UsageError(f"pbkv serve: {problem}")


def _check_flags(flags: Flags, environ: Mapping[str, str]) -> None:
    model = flags.get("model_path")
    if not isinstance(model, str):
        raise UsageError("pbkv serve: SGLang's --model-path is missing; name a model folder or repository")
    if problem := conflict(flags.get, environ):
        raise UsageError(problem)
    config = read_config(model)
    problem = unsupported(config, one_pool="disable_hybrid_swa_memory" in flags) if config else None
    if problem:
        raise UsageError(f"--model-path {model}: this kind of model {problem}")


def _check_addresses(flags: Flags, config: ServerConfig) -> None:
    host = str(flags.get("host") or "127.0.0.1")
    require_token(host, config.token(), "--pbkv-config")
    check_http(host, flags.get("port") or 30000)
    replicas = str(flags.get("dp_size") or 1)
    check_endpoints(config, int(replicas) if replicas.isdigit() else 1)


def _explain(plan: Plan) -> None:
    width = max(len(setting.text) for setting in plan.settings)
    lines = [f"  {setting.text:<{width}}  {setting.why}" for setting in plan.settings]
    print("\n".join(["pbkv serve sets", *lines, *(f"note: {note}" for note in plan.notes)]), file=sys.stderr, flush=True)


def _become(command: list[str], environ: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    os.execve(command[0], command, dict(environ))
