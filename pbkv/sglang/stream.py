"""The event stream of a SGLang scheduler."""

from typing import Any

from sglang.version import __version__

from pbkv.config import ServerConfig
from pbkv.events.stream import EventStream


def open_stream(config: ServerConfig, ctx: Any, replica: int) -> EventStream | None:
    """The stream of this process if it is the one of its replica that publishes."""
    if ctx.tp_rank != 0 or not config.events:
        return None
    args = ctx.server_args
    model = str(args.served_model_name or args.model_path)
    control_url = f"http://{args.host}:{args.port}"
    return EventStream(config.of_replica(replica), engine=f"sglang {__version__}", model=model, control_url=control_url, rank=replica)
