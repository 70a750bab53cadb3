"""Finding out whether an address can be listened on before a library does, which would share it or write a report of its own."""

import socket


def taken(host: str, port: int) -> str:
    """Why nobody can listen on host:port now, in a few words; "" = it is free."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def answers(host: str, port: int) -> bool:
    """Somebody listens on host:port. For servers that share their port: binding beside one succeeds."""
    try:
        with socket.create_connection((host.strip("[]"), port), timeout=1.0):
            return True
    except OSError:
        return False
