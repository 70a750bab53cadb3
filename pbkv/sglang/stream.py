"""The event stream of one server: writer, publisher, and the names that describe the server itself."""

import atexit
from typing import Any

from sglang.version import __version__

from pbkv.events.publisher import Publisher
from pbkv.events.schema import Namespace
from pbkv.events.writer import EventWriter
from pbkv.sglang.config import PluginConfig


class Stream:
    """Opened by the publishing rank of each scheduler."""

    def __init__(self, config: PluginConfig, ctx: Any) -> None:
        self._publisher = Publisher(config.events, config.replay, replay_bytes=config.replay_bytes)
        self.writer = EventWriter(config.server, self._publisher, rank=int(ctx.tp_rank))
        self.events, self.replay = self._publisher.endpoint, self._publisher.replay_endpoint
        args = ctx.server_args
        self.control_url = config.control_url or f"http://{args.host}:{args.port}"
        self.writer.intern(Namespace.ENGINE, f"sglang {__version__}")
        self.writer.intern(Namespace.MODEL, str(args.served_model_name or args.model_path))
        self.writer.intern(Namespace.CONTROL_URL, self.control_url)
        self._publisher.start(self.writer.heartbeat, self.writer.names_message)
        atexit.register(self._publisher.close)
