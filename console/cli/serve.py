"""`pbkv serve --embedded`: a modelled GPU server with the same cache, policies, events and control as the plugin. Needs no GPU."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from console.cli.options import Json
from pbkv.errors import UsageError

if TYPE_CHECKING:
    from pbkv.engine.server.serve import Ready
    from pbkv.engine.tiers import WritePolicy

_PLUGIN = (
    "pbkv serve: expected --embedded; SGLang is started by its own command: "
    "python -m sglang.launch_server --model-path MODEL --enable-hierarchical-cache --radix-cache-backend pbkv"
)


def serve(
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
        metavar="FILE", help="Settings as the plugin takes them (server, events, token_file, knobs ...); default: the file in PBKV_CONFIG.",
    )] = None,
    json_: Json = False,
) -> None:
    """Serve a modelled GPU: OpenAI API, events, knobs and metrics like a server with the plugin, up in a second. A token is a byte."""
    if not embedded:
        raise UsageError(_PLUGIN)
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


def _say(ready: "Ready", model: str, json_: bool) -> None:
    if json_:
        print(json.dumps({"url": ready.url, "events": ready.events, "replay": ready.replay}), flush=True)
    collect = f"pbkv collect --server {ready.url} --db events.duckdb"
    print(f"serving {model} on {ready.url}; collect from it with: {collect}", file=sys.stderr, flush=True)
