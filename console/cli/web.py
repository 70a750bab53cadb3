"""`pbkv web`: serve the web page. The page is its own program; this command becomes it."""

import os
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from console.cli.options import Readonly, Source, TokenFile
from pbkv.control.client import read_token
from pbkv.errors import PbkvError


def web(
    source: Source,
    host: Annotated[str, typer.Option("--host", metavar="H", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="P", min=1, max=65535, help="Port to listen on.")] = 8050,
    readonly: Readonly = False,
    server: Annotated[str | None, typer.Option("--server", metavar="URL", help="Control URL; default: the one the server names.")] = None,
    token_file: TokenFile = None,
) -> None:
    """Serve the web page for SOURCE until interrupted."""
    if find_spec("dashboards") is None:
        raise PbkvError("the web page is not installed; install pbkv-console with its web part")
    if (token := read_token(token_file)) is not None:
        os.environ["PBKV_TOKEN"] = token
    args = [sys.executable, "-m", "dashboards", source, "--host", host, "--port", str(port)]
    args += ["--readonly"] if readonly else []
    args += ["--server", server] if server is not None else []
    # Replacing the process keeps signals, the terminal and the exit status those of the page.
    os.execv(sys.executable, args)
