"""Arguments and options that several commands share, and who the person at the keyboard is."""

import getpass
import socket
from typing import Annotated

import typer

Source = Annotated[str, typer.Argument(
    metavar="SOURCE", help="A live collector (grpc://host:port), a .duckdb file, an archive folder or a lake (postgres:...).",
)]
Server = Annotated[str, typer.Option("--server", metavar="URL", help="The server's control URL, for example http://127.0.0.1:30000.")]
TokenFile = Annotated[str | None, typer.Option("--token-file", metavar="FILE", help="File with the token (or set PBKV_TOKEN).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Readonly = Annotated[bool, typer.Option("--readonly", help="Show knobs but do not allow to change them.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the event log.")]
IfVersion = Annotated[int | None, typer.Option("--if-version", metavar="N", help="Refuse unless the knobs are at this version.")]


def actor() -> str:
    """Who asks for a change, as it stands in the event log: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"[:100]
