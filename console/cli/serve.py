"""`pbkv serve`: SGLang with the plugin, or `--embedded` a modelled GPU server with the same cache, policies, events and control."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from console.cli.options import Json
from pbkv.errors import UsageError

if TYPE_CHECKING:
    from pbkv.engine.server.serve import Ready
    from pbkv.engine.tiers import WritePolicy

_NOTHING = "pbkv serve: expected --embedded, or -- and SGLang's flags: pbkv serve -- --model-path MODEL --hicache-ratio 2"
#: Options that SGLang's server knows too.
_COMMON = ("config", "dry_run", "flags")


def serve(
    context: typer.Context,
    flags: Annotated[list[str] | None, typer.Argument(metavar="[-- FLAGS]", help="SGLang's own flags: serve with SGLang.")] = None,
    embedded: Annotated[bool, typer.Option("--embedded", help="Serve the embedded engine.")] = False,
    host: Annotated[str, typer.Option("--host", metavar="H", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="P", min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 30000,
    model_preset: Annotated[str, typer.Option(metavar="MODEL@GPU", help="Whose speed and KV size to take.")] = "qwen3-14b@h100",
    device_tokens: Annotated[int | None, typer.Option(
        metavar="N", help="Size of the device tier, tokens; default: what the GPU has beside the weights.",
    )] = None,
    host_tokens: Annotated[int, typer.Option(metavar="N", help="Size of the host tier, tokens; 0 = none.")] = 500_000,
    page_size: Annotated[int, typer.Option(metavar="N", help="Tokens of a page.")] = 16,
    context_length: Annotated[int, typer.Option(metavar="N", help="Longest prompt with its reply, tokens.")] = 32_768,
    max_running: Annotated[int, typer.Option(metavar="N", help="Most calls that run at once.")] = 64,
    write_policy: Annotated[str, typer.Option(
        metavar="NAME", help="When KV is copied to the host: write_through, write_through_selective or write_back.",
    )] = "write_through",
    policy: Annotated[str | None, typer.Option(metavar="NAME", help="Eviction policy to start with (a knob).")] = None,
    speed: Annotated[float, typer.Option(metavar="X", help="Seconds of the engine in one second.")] = 1.0,
    config: Annotated[str | None, typer.Option(
        "--pbkv-config", "--config", metavar="FILE",
        help="PBKV's settings (server, events, token_file, knobs ...); default: the file in PBKV_CONFIG.",
    )] = None,
    json_: Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With SGLang: check, print the command, start nothing.")] = False,
) -> None:
    """Serve with SGLang and the pbkv cache: -- and SGLang's flags. Or, with --embedded, serve a modelled GPU: OpenAI API, events, knobs and
    metrics like a server with the plugin, up in a second; a token is a byte there.
    """
    if not embedded:
        return _with_sglang(context, flags or [], config, dry_run)
    if flags or dry_run:
        raise UsageError("pbkv serve: SGLang's flags and --dry-run do not go with --embedded; leave out one or the other")
    from pbkv.engine.server.serve import run
    from pbkv.engine.server.settings import ServeSettings, embedded_config
    from pbkv.engine.settings import EngineSettings
    from pbkv.engine.timing import preset

    timing = preset(model_preset)
    engine = EngineSettings(
        page_size=page_size, device_tokens=timing.device_tokens() if device_tokens is None else device_tokens, host_tokens=host_tokens,
        write_policy=cast("WritePolicy", write_policy), max_running=max_running, timing=timing,
    )
    settings = ServeSettings(host, port, model_preset, context_length, speed, engine, embedded_config(config, engine, policy))
    raise typer.Exit(run(settings, lambda ready: _say(ready, model_preset, json_)))


def _with_sglang(context: typer.Context, flags: list[str], config: str | None, dry_run: bool) -> None:
    from console.cli.serve_sglang import start

    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name not in _COMMON and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"pbkv serve: {option.opts[-1]} belongs to --embedded; SGLang's own flags come after --")
    if not flags:
        raise UsageError(_NOTHING)
    start(flags, config, dry_run=dry_run)


def _say(ready: "Ready", model: str, json_: bool) -> None:
    if json_:
        print(json.dumps({"url": ready.url, "events": ready.events, "replay": ready.replay}), flush=True)
    collect = f"pbkv collect --server {ready.url} --db events.duckdb"
    print(f"serving {model} on {ready.url}; collect from it with: {collect}", file=sys.stderr, flush=True)
