"""`pbkv top`: watch and tune a server in the terminal, or print what it would show once."""

import json
import sys
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from collector.client import open as open_source
from collector.token import state_dir
from collector.views.overview import load_overview
from console.cli.options import Json, Readonly, Source, TokenFile, actor
from pbkv.control.client import ControlClient, read_token
from pbkv.errors import UsageError


def top(
    source: Source,
    server: Annotated[str | None, typer.Option("--server", metavar="URL", help="Control URL; default: the one the server names.")] = None,
    readonly: Readonly = False,
    once: Annotated[bool, typer.Option("--once", help="With --json: print one reading and exit.")] = False,
    json_: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Watch and tune a server: cache, hit rates, predictor, evictions, prefetches, workflows, knobs."""
    if once != json_:
        raise UsageError("--once and --json go together; give both to print one reading, or neither for the screen")
    token = read_token(token_file)
    if once:
        with open_source(source, token) as reader:
            print(json.dumps(asdict(load_overview(reader)), default=_iso))
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("pbkv top needs a terminal; give --once --json to print one reading")
    # A source that can never be read is refused here; one that is merely down is waited for on the screen.
    open_source(source, token).close()
    _run(source, server, readonly, token)


def _run(source: str, server: str | None, readonly: bool, token: str | None) -> None:
    from console.top.app import TopApp
    from console.top.feed import Feed
    from console.top.logfile import log_to_file
    from pbkv.whatif.front import what_if
    from pbkv.whatif.live import FromLog

    log_to_file()
    feed = Feed(
        lambda: open_source(source, token), lambda url: ControlClient(url, token=token, actor=actor(), timeout_s=3.0), control_url=server,
    )
    desk = what_if(source, FromLog(partial(open_source, source, token)), state_dir())
    TopApp(feed, readonly=readonly, desk=desk).run()


def _iso(value: object) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
