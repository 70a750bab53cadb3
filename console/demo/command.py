"""`pbkv demo`: options, checks before anything starts, and the three ways to look at it."""

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from console.cli.options import Json
from console.demo.engines import ENGINES, pbkv
from console.demo.process import INTERRUPTS
from pbkv.errors import UsageError

if TYPE_CHECKING:
    from console.demo.settings import Settings
    from console.demo.stack import Stack


def demo(
    engine: Annotated[str, typer.Option(
        metavar="NAME", help="Engine to run: embedded (a model of a GPU server, up in a second) or sglang (a real one on CPU, tiny model).",
    )] = ENGINES[0],
    workload: Annotated[str, typer.Option(metavar="NAME", help="Workflows to play: hover, swebench or financebench.")] = "hover",
    trace: Annotated[Path | None, typer.Option(metavar="PATH", help="Play recorded conversations: a folder or one .json file.")] = None,
    db: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the events in this .duckdb file.")] = None,
    web: Annotated[bool, typer.Option("--web", help="Serve the web page instead of opening the terminal app.")] = False,
    headless: Annotated[bool, typer.Option("--headless", help="Show nothing; run for --seconds and print what was stored.")] = False,
    seconds: Annotated[float, typer.Option(metavar="N", help="How long a headless run plays.")] = 60.0,
    json_: Json = False,
) -> None:
    """Start an engine, a collector and a load on this machine and watch them. Ctrl-C (in the app: q) ends everything."""
    if engine not in ENGINES:
        raise UsageError(f"--engine {engine!r}: no such engine; expected {' or '.join(ENGINES)}")
    if headless and web:
        raise UsageError("--headless and --web: expected one of them")
    if not 1 <= seconds <= 86_400:
        raise UsageError(f"--seconds {seconds:g}: expected 1 to 86400")
    if json_ and not headless:
        raise UsageError("--json: only with --headless")
    if not (headless or web or (sys.stdin.isatty() and sys.stderr.isatty())):
        raise UsageError("demo: the terminal app needs a terminal; use --web or --headless")
    settings = _settings(engine, workload, trace, db)
    from console.demo.headless import run_headless
    from console.demo.stack import Stack, say

    show = partial(run_headless, seconds=seconds, json_=json_) if headless else _web if web else _top
    try:
        with _terminated_like_interrupted(), Stack(settings) as stack:
            show(stack)
    finally:
        if settings.database.exists():
            say(f"events are in {settings.database}")
        say(f"logs are in {settings.run_dir}")


def _settings(engine: str, workload: str, trace: Path | None, db: Path | None) -> "Settings":
    from collector.token import state_dir
    from console.demo.rundir import new_run
    from console.demo.settings import Settings
    from pbkv.workloads.catalog import make_workload
    from pbkv.workloads.trace import load_trace

    make_workload(workload)
    if trace is not None:
        load_trace(trace)
    if db is not None and not db.parent.is_dir():
        raise UsageError(f"--db {str(db)!r}: folder {str(db.parent)!r} does not exist")
    state = state_dir()
    try:
        run_dir = new_run(state)
    except OSError as error:
        raise UsageError(f"state folder {str(state)!r}: cannot be used ({error.strerror}); name another with PBKV_STATE_DIR") from None
    return Settings(run_dir, state, db or run_dir / "events.duckdb", engine, workload, trace)


@contextmanager
def _terminated_like_interrupted() -> Generator[None]:
    """SIGTERM and SIGHUP end the demo the way Ctrl-C does, and Ctrl-C does so also where the shell had it ignored."""
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _top(stack: "Stack") -> None:
    argv = pbkv("top", stack.settings.source)
    # The app owns the terminal until it is left; a part that died meanwhile is shown there as stale, and named afterwards.
    status = subprocess.run(argv, env=stack.environment(), check=False).returncode
    stack.check()
    if status:
        raise typer.Exit(status)


def _web(stack: "Stack") -> None:
    url = stack.start_web()
    print(url, flush=True)
    while True:
        stack.watch(3600.0)
