"""`pbkv`: the command line. Data goes to stdout, messages to stderr; exit 0 good, 1 failed, 2 bad usage or input, 130 interrupted."""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from console.cli.lazy import Lazy, LazyGroup
from pbkv import __version__
from pbkv.errors import PbkvError

COMMANDS: dict[str, Lazy] = {
    "demo": Lazy("console.demo.command", "demo", "Start an engine, a collector and a load, and watch them."),
    "serve": Lazy("console.cli.serve", "serve", "Serve with SGLang and the plugin, or a modelled GPU without one."),
    "collect": Lazy("console.cli.collect", "collect", "Store a server's event stream in DuckDB and serve reads."),
    "top": Lazy("console.cli.top", "top", "Watch and tune a server in the terminal."),
    "web": Lazy("console.cli.web", "web", "Serve the web page for a source."),
    "knobs": Lazy("console.cli.knobs", "app", "Read and change gamma, k, the prefetch budget and the other knobs."),
    "query": Lazy("console.cli.query", "query", "Ask a source a stored question or any SELECT."),
    "whatif": Lazy("console.whatif.command", "whatif", "Replay what was recorded at other settings."),
    "bench": Lazy("console.cli.bench", "app", "Run the paper's experiments, or a benchmark."),
    "train": Lazy("console.cli.train", "train", "Learn from recorded runs which agents follow."),
    "eval": Lazy("console.cli.eval", "eval_", "Say how good a predictor is on recorded runs."),
    "doctor": Lazy("console.doctor.command", "doctor", "Say what is installed and reachable, and what is not."),
}


class _Commands(LazyGroup):
    table = COMMANDS


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pbkv {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Manage and watch a KV cache that is run by prediction. SOURCE is a collector (grpc://host:port) or a .duckdb file."""


def root() -> TyperGroup:
    """The command tree; nothing below it is imported yet."""
    app = typer.Typer(cls=_Commands, add_completion=False, rich_markup_mode=None, no_args_is_help=True)
    app.callback()(_root)
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    return command


def run(args: list[str]) -> int:
    """Run one command line; returns the exit status. Every foreseen failure is one sentence on stderr."""
    try:
        return _status(root().main(args, prog_name="pbkv", standalone_mode=False))
    except PbkvError as error:
        return _say(str(error), error.exit_code)
    except TyperException as error:
        return _say(_usage(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # The reader of our stdout left; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        return _say(f"this command needs the Python package {error.name!r}, which is not installed; install the missing part of pbkv", 1)


def _status(result: Any) -> int:
    return result if isinstance(result, int) else 0


def _usage(error: TyperException) -> str:
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if text.startswith("Usage:") or context is None:
        return text
    return f"{text.rstrip('.')}; see '{context.command_path} --help'"


def _say(text: str, status: int) -> int:
    print(text, file=sys.stderr)
    return status


def main() -> None:
    """Entry point of the `pbkv` script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
