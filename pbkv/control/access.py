"""Who may reach an engine's control interface: anyone on loopback, elsewhere whoever shows its token."""

import ipaddress

from pbkv.errors import UsageError


def is_loopback(host: str) -> bool:
    """Whether `host` is an address of this machine alone; a name other than localhost is not looked up and counts as foreign."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_token(host: str, token: str | None, setting: str) -> None:
    """Raise UsageError when an engine would bind `host` without a token: anyone who reaches the port could change the knobs."""
    if token is None and not is_loopback(host):
        raise UsageError(f"--host {host} is not loopback: set token_file in the {setting} file, or bind 127.0.0.1")
