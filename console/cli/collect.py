"""`pbkv collect`: store event streams in DuckDB and serve reads, until interrupted; `--status` asks a running collector how it does."""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from collector.client import open as open_source
from collector.flight import leave
from collector.lake import check_source
from collector.options import Options, Tls, parse_duration, parse_size
from collector.retention import Retention
from collector.service import DEFAULT_LISTEN, parse_listen, parse_pair, run_collector
from collector.status import lines
from collector.watchdog import SUPERVISED, supervise
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
Database = Annotated[Path | None, typer.Option("--db", metavar="FILE", help="DuckDB file; made when missing.")]
Archive = Annotated[Path | None, typer.Option("--archive", metavar="DIR", help="Folder of Parquet files that old events go to.")]
Keep = Annotated[str | None, typer.Option("--keep", metavar="TIME", help="Events older than this leave FILE: 90s, 15m, 24h, 7d.")]
KeepBytes = Annotated[str, typer.Option("--keep-bytes", metavar="SIZE", help="The oldest events leave a FILE larger than this.")]
ArchiveKeep = Annotated[str | None, typer.Option("--archive-keep", metavar="TIME", help="Archived segments older than this are deleted.")]
ArchiveBytes = Annotated[str | None, typer.Option("--archive-bytes", metavar="SIZE", help="The oldest go while DIR is larger than this.")]
TlsFiles = Annotated[str | None, typer.Option("--tls", metavar="CERT,KEY", help="PEM files: serve readers over TLS (grpc+tls://).")]
Metrics = Annotated[str, typer.Option("--metrics", metavar="HOST:PORT", help="Serve /metrics for Prometheus there.")]
Quack = Annotated[str, typer.Option("--quack", metavar="HOST:PORT", help="Serve DuckDB's own protocol too, for other DuckDB clients.")]
QueryLimit = Annotated[str, typer.Option("--quack-limit", metavar="TIME", help="A longer query over it restarts the collector.")]
Supervised = Annotated[bool, typer.Option(
    "--supervise", help="Run under a supervisor that starts it again when a query takes all memory; --quack implies it.",
)]
Lake = Annotated[str | None, typer.Option("--lake", metavar="postgres:...", help="Write to a fleet's lake instead of FILE.")]
LakeData = Annotated[Path | None, typer.Option("--lake-data", metavar="DIR", help="Shared folder of a new lake's data.")]
Status = Annotated[bool, typer.Option("--status", help="Show how the collector at --listen does, and exit.")]
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
    db: Database = None,
    connect: Connect = None,
    server: Servers = None,
    listen: Listen = DEFAULT_LISTEN,
    archive: Archive = None,
    keep: Keep = None,
    keep_bytes: KeepBytes = "32GiB",
    archive_keep: ArchiveKeep = None,
    archive_bytes: ArchiveBytes = None,
    tls: TlsFiles = None,
    metrics: Metrics = "",
    quack: Quack = "",
    quack_limit: QueryLimit = "30s",
    supervised: Supervised = False,
    lake: Lake = None,
    lake_data: LakeData = None,
    status: Status = False,
    json_: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Store the event streams of one or more servers in FILE, and serve them to `pbkv top`, `web` and `query`."""
    if status:
        _show(listen, read_token(token_file), json_)
        return
    if (db is None) == (lake is None):
        raise UsageError("no database: name the file that events go to with --db FILE, or a fleet's lake with --lake")
    if lake is not None and (archive or keep):
        raise UsageError("--archive and --keep are for a file: a lake is Parquet already, and others write it too")
    if not connect and not server:
        raise UsageError("nothing to collect from: name a server with --server URL, or its endpoints with --connect EVENTS,REPLAY")
    pairs = [parse_pair(text) for text in connect or []]
    parse_listen(listen)
    if quack:
        parse_listen(quack)
        if lake is not None:
            raise UsageError("--quack serves a file: readers of a lake attach the lake itself")
    if (quack or supervised) and SUPERVISED not in os.environ:
        raise typer.Exit(supervise([sys.executable, "-m", "console.main", *sys.argv[1:]]))
    limits = Retention(
        archive, parse_duration(keep, "--keep") if keep else None, parse_size(keep_bytes, "--keep-bytes"),
        parse_duration(archive_keep, "--archive-keep") if archive_keep else None,
        parse_size(archive_bytes, "--archive-bytes") if archive_bytes else None,
    )
    if archive is None and (archive_keep or archive_bytes):
        raise UsageError("--archive-keep and --archive-bytes limit an archive: name its folder with --archive DIR")
    if lake is not None:
        limits = Retention(keep_bytes=None)
    options = Options(
        limits, _tls(tls), metrics, check_source(lake) if lake else "", lake_data, quack, parse_duration(quack_limit, "--quack-limit"),
        supervised=SUPERVISED in os.environ,
    )
    stop = _Stop()
    for url in server or []:
        pairs += discover(url, read_token(token_file), stop.event)
    if not stop.event.is_set():
        try:
            final = run_collector(pairs, db or Path(), listen, None, lambda ready: _ready(ready, json_), stop.event, options)
        except PbkvError as error:
            leave(error.exit_code, str(error))
            raise
        _finished(final, json_)
    raise typer.Exit(leave(130 if stop.interrupted else 0))


def _tls(text: str | None) -> Tls | None:
    if text is None:
        return None
    certificate, _, key = text.partition(",")
    if not certificate or not key:
        raise UsageError(f"--tls {text!r}: expected CERT,KEY, two PEM files")
    return Tls(Path(certificate), Path(key))


def _show(listen: str, token: str | None, json_: bool) -> None:
    source = listen if "://" in listen else f"grpc://{listen}"
    parse_listen(source)
    with open_source(source, token) as reader:
        status = reader.status()
    if json_:
        print(json.dumps(status))
        return
    for what, value in lines(status):
        print(f"{what:10} {value}")


def discover(url: str, token: str | None, stop: threading.Event) -> list[tuple[str, str]]:
    """(events, replay) endpoints a server names, of each of its replicas; waits for a server that is not up yet. Empty when `stop` was
    set meanwhile.
    """
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
            return []


def _endpoints(url: str, state: dict[str, Any]) -> list[tuple[str, str]]:
    pairs: list[list[Any]] = state.get("streams") or [[state.get("events"), state.get("replay")]]
    if not all(isinstance(endpoint, str) for pair in pairs for endpoint in pair):
        raise PbkvError(f"server {url} names no event endpoints in /pbkv/state; start it with events on, or use --connect EVENTS,REPLAY")
    return [(events, replay) for events, replay in pairs]


def _ready(ready: dict[str, Any], json_: bool) -> None:
    if json_:
        print(json.dumps(ready), flush=True)
    print(f"collecting into {ready['db']}; watch it with: pbkv top {ready['source']}", file=sys.stderr, flush=True)


def _finished(status: dict[str, Any], json_: bool) -> None:
    if json_:
        print(json.dumps(status), flush=True)
    rows = sum(status["rows"].values())
    print(f"stored {rows:,} rows; {status['gaps']} gaps, {status['lost']} messages lost", file=sys.stderr)
