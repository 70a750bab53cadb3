"""SGLang servers on the GPU, one at a time, with or without the plugin."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.server import Server, _wait_until_up, end_group


@dataclass(frozen=True)
class Servers:
    """What all servers of a comparison have in common; `dummy`: random weights for a model that has none."""

    model: Path
    dummy: bool = False
    running: int = 8
    page: int = 64
    host: float = 2.0
    link_bytes_per_s: float = 25e9
    flags: tuple[str, ...] = ()

    def command(
        self, size: int, port: int, *, plugin: bool, extra: Sequence[str] = (), module: str = "sglang.launch_server"
    ) -> list[str]:
        """The command line of a server of `size` device tokens; flags given later win."""
        argv = [sys.executable, "-m", module, "--model-path", str(self.model), "--host", "127.0.0.1", "--port", str(port)]
        argv += ["--max-total-tokens", str(size // self.page * self.page), "--page-size", str(self.page)]
        argv += ["--max-running-requests", str(self.running), "--enable-metrics", "--enable-cache-report"]
        argv += ["--enable-hierarchical-cache", "--hicache-ratio", str(self.host)]
        if self.dummy:
            argv += ["--load-format", "dummy"]
        if not (self.model / "tokenizer_config.json").exists():
            argv.append("--skip-tokenizer-init")  # requests carry token ids
        if plugin:
            argv += ["--radix-cache-backend", "pbkv"]
        return [*argv, *self.flags, *extra]

    @contextmanager
    def start(
        self, size: int, *, config: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None, **options: Any
    ) -> Iterator[Server]:
        """A running server; with `config` it has the plugin. It and all it started are ended afterwards."""
        with tempfile.TemporaryDirectory() as folder:
            settings = Path(folder) / "pbkv.json"
            settings.write_text(json.dumps({"link_bytes_per_s": self.link_bytes_per_s, **(config or {})}))
            port = free_port()
            argv = self.command(size, port, plugin=config is not None, **options)
            environment = {**os.environ, "PBKV_CONFIG": str(settings), **(env or {})}
            log = Path(folder) / "log"
            with log.open("wb") as out:
                process = subprocess.Popen(argv, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                server = Server(process, port, log)
                _wait_until_up(server)
                yield server
            finally:
                end_group(process)
