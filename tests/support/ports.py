"""Free TCP ports for servers that tests start."""

from console.demo.settings import free_ports


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    return free_ports(1)[0]
