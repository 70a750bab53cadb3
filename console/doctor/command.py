"""`pbkv doctor`: one line per thing that was looked at, worst news included; exit 1 when something has to be mended."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from console.cli.options import Json, TokenFile
from console.doctor.finding import Finding, Level


def doctor(
    server: Annotated[str | None, typer.Option(metavar="URL", help="Also look at this server, e.g. http://127.0.0.1:30000.")] = None,
    source: Annotated[str | None, typer.Option(metavar="SRC", help="Also look at this collector (grpc://host:port) or file.")] = None,
    json_: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Say what is installed and reachable, and what is not, with what to do about it. Exit 1 when something has to be mended."""
    findings = list(examine(server, source, token_file))
    if json_:
        print(json.dumps([asdict(f) for f in findings], indent=2))
    else:
        _print(findings)
    if any(f.level is Level.FAIL for f in findings):
        raise typer.Exit(1)


def examine(server: str | None, source: str | None, token_file: str | None) -> Iterator[Finding]:
    """Every finding, machine first. Raises UsageError for arguments that cannot be meant."""
    from collector.token import state_dir
    from console.doctor import machine, packages, reach
    from pbkv.control.client import read_token
    from pbkv.errors import UsageError

    if server is not None and not server.startswith(("http://", "https://")):
        raise UsageError(f"--server {server!r}: expected http://HOST:PORT, for example http://127.0.0.1:30000")
    token = read_token(token_file)
    yield packages.check_python()
    yield from packages.check_packages()
    yield machine.check_duckdb()
    yield from machine.check_state(state_dir())
    yield from machine.check_programs()
    yield from reach.check_ports()
    if server is not None:
        yield from reach.check_server(server, token)
    if source is not None:
        yield from reach.check_source(source)


def _print(findings: list[Finding]) -> None:
    width = max(len(f.topic) for f in findings)
    for finding in findings:
        todo = f"\n{'':6}{'':{width}}-> {finding.todo}" if finding.todo else ""
        print(f"{finding.level:<6}{finding.topic:<{width}}  {finding.found}{todo}")
    counts = Counter(f.level for f in findings)
    print(", ".join(f"{counts[level]} {level}" for level in Level), file=sys.stderr)
