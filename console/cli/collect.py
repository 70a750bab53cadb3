"""`pbkv collect`: store event streams in DuckDB and serve reads, until interrupted."""

import json
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from collector.flight import leave
from collector.service import DEFAULT_LISTEN, parse_listen, parse_pair, run_collector
from console.cli.options import Json, TokenFile
from pbkv.control.client import ControlClient, read_token
from pbkv.errors import PbkvError, Unreachable, UsageError

_RETRY_S = 1.0

Connect = Annotated[list[str] | None, typer.Option(
    "--connect", metavar="EVENTS,REPLAY", help="Event and replay endpoints of a server; repeatable.",
)]
Servers = Annotated[list[str] | None, typer.Option(
    "--server", metavar="URL", help="Control URL of a server, which names its endpoints; repeatable.",
)]
Database = Annotated[Path, typer.Option("--db", metavar="FILE", help="DuckDB file; made when missing.")]
Listen = Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where readers connect; port 0 takes a free one.")]


class _Stop:
    """SIGINT and SIGTERM end the collector in order; only the first counts as an interrupt."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.interrupted = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = number == signal.SIGINT
        self.event.set()


def collect(
    db: Database,
    connect: Connect = None,
    server: Servers = None,
    listen: Listen = DEFAULT_LISTEN,
    json_: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Store the event streams of one or more servers in FILE, and serve them to `pbkv top`, `web` and `query`."""
    if not connect and not server:
        raise UsageError("nothing to collect from: name a server with --server URL, or its endpoints with --connect EVENTS,REPLAY")
    pairs = [parse_pair(text) for text in connect or []]
    parse_listen(listen)
    stop = _Stop()
    for url in server or []:
        found = discover(url, read_token(token_file), stop.event)
        pairs += [found] if found else []
    if not stop.event.is_set():
        try:
            status = run_collector(pairs, db, listen, None, lambda ready: _ready(ready, json_), stop.event)
        except PbkvError as error:
            leave(error.exit_code, str(error))
            raise
        _finished(status, json_)
    raise typer.Exit(leave(130 if stop.interrupted else 0))


def discover(url: str, token: str | None, stop: threading.Event) -> tuple[str, str] | None:
    """(events, replay) endpoints a server names; waits for a server that is not up yet. None when `stop` was set meanwhile."""
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--server {url!r}: expected http://HOST:PORT, for example http://127.0.0.1:30000")
    client = ControlClient(url, token=token)
    waiting = False
    while True:
        try:
            return _endpoints(url, client.state())
        except Unreachable as error:
            if not waiting:
                print(f"waiting: {error}", file=sys.stderr)
            waiting = True
        if stop.wait(_RETRY_S):
            return None


def _endpoints(url: str, state: dict[str, Any]) -> tuple[str, str]:
    events, replay = state.get("events"), state.get("replay")
    if not isinstance(events, str) or not isinstance(replay, str):
        raise PbkvError(f"server {url} names no event endpoints in /pbkv/state; start it with events on, or use --connect EVENTS,REPLAY")
    return events, replay


def _ready(ready: dict[str, Any], json_: bool) -> None:
    if json_:
        print(json.dumps(ready), flush=True)
    print(f"collecting into {ready['db']}; watch it with: pbkv top {ready['source']}", file=sys.stderr, flush=True)


def _finished(status: dict[str, Any], json_: bool) -> None:
    if json_:
        print(json.dumps(status), flush=True)
    rows = sum(status["rows"].values())
    print(f"stored {rows:,} rows; {status['gaps']} gaps, {status['lost']} messages lost", file=sys.stderr)
