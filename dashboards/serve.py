"""Serving the page: checks first, then one socket, then the app."""

import errno
import os
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from dashboards.security import is_loopback
from pbkv.control.client import read_token
from pbkv.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from uvicorn import Server

Started = Callable[[str], None]


def run(
    source: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8050,
    readonly: bool = False,
    server: str | None = None,
    token_file: str | None = None,
    collector_token: str | None = None,
    started: Started | None = None,
) -> None:
    """Serve the page over `source` until interrupted. Port 0 takes a free one; `started` gets the address once it listens.

    Raises UsageError, before anything listens, for a bad source, a taken port, or editing off loopback without a token.
    """
    local = is_loopback(host)
    token = read_token(token_file) or os.environ.get("PBKV_TOKEN") or None
    check_access(host, readonly=readonly, token=token)
    check_server(server)
    check_source(source, collector_token)
    listener = bind(host, port)
    try:
        _serve(listener, address(host, listener), started or _say, source, server, token, readonly, local, collector_token)
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()


def _serve(
    listener: socket.socket,
    url: str,
    started: Started,
    source: str,
    server: str | None,
    token: str | None,
    readonly: bool,
    local: bool,
    collector_token: str | None,
) -> None:
    import uvicorn

    from dashboards.app import create_app

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started(url)

    app = create_app(source, server=server, token=token, readonly=readonly, local=local, collector_token=collector_token)
    config = uvicorn.Config(app.server, log_level="warning", timeout_graceful_shutdown=2, ws_max_size=1 << 20)
    site = app.server.state.site
    site.start()
    try:
        _run(Announcing(config), listener)
    finally:
        site.stop()


def _run(server: "Server", listener: socket.socket) -> None:
    server.run(sockets=[listener])


def check_access(host: str, *, readonly: bool, token: str | None) -> None:
    """Off loopback anyone who reaches the port sees the page; editing from there needs a token."""
    if not is_loopback(host) and not readonly and not token:
        raise UsageError(
            f"--host {host}: off loopback anyone could change knobs; give --token-file FILE or PBKV_TOKEN (visitors type the token before "
            "an edit) or --readonly"
        )


def check_server(server: str | None) -> None:
    """A control URL is http or https."""
    if server is not None and not server.startswith(("http://", "https://")):
        raise UsageError(f"--server {server!r}: expected a URL like http://127.0.0.1:30000")


def check_source(source: str, token: str | None = None) -> None:
    """A source that can never be read is refused at once; a collector that is only not there yet is waited for on the page."""
    from collector import client

    try:
        client.open(source, token).close()
    except Unreachable:
        return


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises UsageError when the address cannot be had."""
    if not 0 <= port <= 65_535:
        raise UsageError(f"--port {port}: expected 0 to 65535")
    listener: socket.socket | None = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
        return listener
    except OSError as error:
        if listener is not None:
            listener.close()
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound ({error.strerror})"
        raise UsageError(f"--host {host} --port {port}: {reason}; name another with --host or --port") from None


def address(host: str, listener: socket.socket) -> str:
    """URL of a bound socket."""
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _say(url: str) -> None:
    sys.stderr.write(f"serving {url}\n")
    sys.stderr.flush()
