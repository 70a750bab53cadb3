"""The event stream of a SGLang scheduler."""

from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from sglang.version import __version__

from pbkv.config import ServerConfig
from pbkv.events.stream import EventStream


def open_stream(config: ServerConfig, ctx: Any, replica: int) -> EventStream | None:
    """The stream of this process if it is the one of its replica that publishes."""
    if ctx.tp_rank != 0 or not config.events:
        return None
    args = ctx.server_args
    own = replace(config, events=endpoint_of(config.events, replica), replay=endpoint_of(config.replay, replica))
    model = str(args.served_model_name or args.model_path)
    return EventStream(
        own, engine=f"sglang {__version__}", model=model, control_url=f"http://{args.host}:{args.port}", rank=replica,
    )


def endpoint_of(endpoint: str, replica: int) -> str:
    """The endpoint of a data-parallel replica: two ports on for each, one for events and one for replay, where the port is fixed."""
    port = urlsplit(endpoint).port if not endpoint.endswith(":*") else None
    return endpoint if port is None else f"{endpoint.removesuffix(str(port))}{port + 2 * replica}"
