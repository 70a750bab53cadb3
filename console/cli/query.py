"""`pbkv query`: a stored question or any SELECT, over a live collector or a file."""

import json
from typing import Annotated, Any

import typer

from collector.client import open as open_source
from collector.reader import Reader
from collector.views.library import QUERIES
from collector.views.scope import find_scope
from console.cli.options import Source, TokenFile
from console.cli.output import FORMATS, refuse_binary_on_terminal, write_result
from pbkv.control.client import read_token
from pbkv.errors import UsageError

_NAMES = ", ".join(QUERIES)
Question = Annotated[str, typer.Argument(metavar="NAME|SQL", help=f"One SELECT, or a stored question: {_NAMES}.")]
Param = Annotated[list[str] | None, typer.Option(
    "--param", metavar="K=V", help="Value of $k in the SQL (JSON, else text). Stored questions take window_s (default 60) and server.",
)]
Format = Annotated[str, typer.Option("--format", metavar="|".join(FORMATS), help="How to print the answer.")]


def query(source: Source, question: Question, param: Param = None, format_: Format = "table", token_file: TokenFile = None) -> None:
    """Ask SOURCE a stored question by NAME, or any SELECT over the event tables (call, eviction, prediction, ...)."""
    if format_ not in FORMATS:
        raise UsageError(f"--format {format_!r}: expected one of {', '.join(FORMATS)}")
    params = parse_params(param or [])
    stored = " " not in question.strip() and "\n" not in question.strip()
    if stored:
        check_stored(question.strip(), params)
    refuse_binary_on_terminal(format_)
    with open_source(source, read_token(token_file)) as reader:
        table = _stored(reader, question.strip(), params) if stored else reader.sql(question, params or None, deadline_s=60.0)
        write_result(table, format_)


def parse_params(given: list[str]) -> dict[str, Any]:
    """["k=3", "name=x"] as values: JSON where it is JSON, else text. Raises UsageError."""
    params: dict[str, Any] = {}
    for text in given:
        name, sep, value = text.partition("=")
        if not sep or not name.isidentifier():
            raise UsageError(f"--param {text!r}: expected NAME=VALUE, for example --param window_s=300")
        if name in params:
            raise UsageError(f"--param {name}: given twice; give it once")
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value
    return params


def check_stored(name: str, params: dict[str, Any]) -> None:
    """Raises UsageError for a question or a parameter that does not exist, or a window that is none."""
    if name not in QUERIES:
        raise UsageError(f"question {name!r}: no such stored question; expected one SELECT or one of {_NAMES}")
    for key in params:
        if key not in ("window_s", "server"):
            raise UsageError(f"--param {key}: stored questions take window_s and server")
    window = params.get("window_s", 60.0)
    if isinstance(window, bool) or not isinstance(window, int | float) or not 0 < window <= 366 * 86_400:
        raise UsageError(f"--param window_s={window}: expected a number of seconds above 0 and up to 31622400")


def _stored(reader: Reader, name: str, params: dict[str, Any]) -> Any:
    server = params.get("server")
    scope = find_scope(reader, float(params.get("window_s", 60.0)), str(server) if server is not None else None)
    return QUERIES[name].run(reader, scope.params)
