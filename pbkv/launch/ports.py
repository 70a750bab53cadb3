"""Addresses a server is about to take: looked at before anything is started, since SGLang would find out minutes later."""

import errno
import socket
from urllib.parse import urlsplit

from pbkv.config import ServerConfig
from pbkv.errors import UsageError


def check_http(host: str, port: object) -> None:
    """Raise UsageError when SGLang could not listen there."""
    number = _port(port)
    taken = _why_not(host, number)
    if taken:
        raise UsageError(f"--host {host} --port {number}: {taken}; stop what listens there, or name another")


def _port(value: object) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if not 0 < number < 65536:
        raise UsageError(f"--port {str(value)[:20]}: expected a whole number from 1 to 65535")
    return number


def check_endpoints(config: ServerConfig, replicas: int) -> None:
    """Raise UsageError for endpoints of the event stream that `replicas` schedulers could not bind."""
    for number in range(replicas):
        _check_endpoints(config.of_replica(number), f", moved for replica {number}" if number else "")


def _check_endpoints(config: ServerConfig, moved: str) -> None:
    for name, endpoint in (("events", config.events), ("replay", config.replay)):
        parts = urlsplit(endpoint)
        port = parts.netloc.rpartition(":")[2]
        if parts.scheme != "tcp" or not port.isascii() or not port.isdigit() or port == "0":
            continue  # a free port, no events at all, or for the publisher to judge
        shown = f"{name} = {endpoint!r} in the settings file{moved}"
        taken = _why_not(parts.netloc.rpartition(":")[0].strip("[]"), int(port))
        if taken:
            raise UsageError(f"{shown}: {taken}; name another port, or * for any")


def _why_not(host: str, port: int) -> str | None:
    """Why an address cannot be listened on; None when it can, or when only the server itself could tell."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            None if host in ("", "*") else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE,
        )[0]
    except (OSError, UnicodeError, OverflowError):
        return None  # a network device's name, or a host that is unknown here
    with socket.socket(family, kind, proto) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            return "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
    return None
