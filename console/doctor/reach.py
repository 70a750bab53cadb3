"""What answers: a server's control interface, its event endpoints, a collector or a recorded file."""

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from console.doctor.finding import Finding, fail, ok, warn
from pbkv.errors import PbkvError

_TIMEOUT_S = 3.0
#: Ports that commands listen on by default.
PORTS = {"collect": (5615, "--listen"), "web": (8050, "--port")}


def check_server(url: str, token: str | None) -> Iterator[Finding]:
    """The control interface, then the event endpoints it names, from where we are."""
    from pbkv.control.client import ControlClient

    client = ControlClient(url, token=token, timeout_s=_TIMEOUT_S)
    try:
        state, knobs = client.state(), client.knobs()
    except PbkvError as error:
        yield _failure("server", error, "check the address, and --token-file")
        return
    yield ok("server", f"{url}: {state['server']}, {state['engine']}, step {state['step']}, knobs at version {knobs['version']}")
    yield from _same_version(state)
    yield from _dropped(state)
    for name in ("events", "replay"):
        yield _endpoint(name, state.get(name))


def _failure(topic: str, error: PbkvError, otherwise: str) -> Finding:
    # Errors for people end in what to do, after a semicolon.
    found, _, todo = str(error).partition("; ")
    return fail(topic, found, todo or otherwise)


def _same_version(state: dict[str, Any]) -> Iterator[Finding]:
    from pbkv import __version__

    theirs = state.get("pbkv")
    if theirs != __version__:
        yield warn("versions", f"server runs pbkv {theirs}, this is {__version__}", "use the same version on both sides")


def _dropped(state: dict[str, Any]) -> Iterator[Finding]:
    if dropped := state.get("dropped_messages"):
        yield warn("events", f"the server dropped {dropped} messages", "its publisher could not keep up; numbers in that time are too low")


def _endpoint(name: str, endpoint: object) -> Finding:
    if not isinstance(endpoint, str) or not endpoint:
        return fail(f"{name} endpoint", "the server names none", "start it with events on (setting \"events\" of the plugin)")
    parts = urlsplit(endpoint)
    if parts.scheme != "tcp" or parts.hostname is None or parts.port is None:
        return warn(f"{name} endpoint", f"{endpoint}: not a TCP address", "a collector on another machine cannot reach it")
    try:
        socket.create_connection((parts.hostname, parts.port), _TIMEOUT_S).close()
    except OSError as error:
        why = f"{endpoint} does not answer ({error.strerror or error})"
        return fail(f"{name} endpoint", why, "run the collector on the server's machine, or open the port")
    return ok(f"{name} endpoint", endpoint)


def check_ports() -> Iterator[Finding]:
    """Whether the default ports are free; a taken one is no failure, it may be our own collector."""
    for command, (port, option) in PORTS.items():
        topic = f"port {port}"
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                yield warn(topic, "in use", f"if that is not `pbkv {command}` itself, give it another with {option}")
                continue
        yield ok(topic, f"free for `pbkv {command}`")


def check_source(source: str) -> Iterator[Finding]:
    """A collector that answers with our token, or a file that opens; then what it holds."""
    from collector.client import open as open_source

    try:
        with open_source(source) as reader:
            status = reader.status()
    except PbkvError as error:
        yield _failure("source", error, "see `pbkv collect --help`")
        return
    rows = sum(int(n) for n in status["rows"].values())
    text = f"{source}: {rows:,} rows"
    yield ok("source", text) if rows else warn("source", text, "no event has come yet: is a server running and named to the collector?")
    if status["gaps"]:
        yield warn("gaps", f"{status['gaps']} gaps, {status['lost']} messages lost", "see `pbkv query SOURCE \"SELECT * FROM loss\"`")
