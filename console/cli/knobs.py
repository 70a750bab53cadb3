"""`pbkv knobs`: read, change, list changes of, and revert the knobs of a running server."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from console.cli.options import IfVersion, Json, Reason, Server, TokenFile, actor
from console.cli.output import print_table
from pbkv.control.client import ControlClient, parse_assignments, read_token
from pbkv.control.tuning import Applied, KnobStates, apply_change, load_knobs, revert_change
from pbkv.errors import UsageError
from pbkv.knobs import KNOBS

app = typer.Typer(
    help="Read and change the knobs of a running server.", add_completion=False, rich_markup_mode=None, no_args_is_help=True,
)

Expires = Annotated[float | None, typer.Option(
    "--expires", metavar="S", help="The server takes the change back after S seconds unless confirmed.",
)]


def _client(server: str, token_file: str | None) -> ControlClient:
    if not server.startswith(("http://", "https://")):
        raise UsageError(f"--server {server!r}: expected http://HOST:PORT, for example http://127.0.0.1:30000")
    return ControlClient(server, token=read_token(token_file), actor=actor())


@app.command("get")
def get(
    server: Server,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Knobs to show; all without one.")] = None,
    json_: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Show each knob's value, default, bounds and meaning, and where its last change took effect."""
    for name in names or ():
        if name not in KNOBS:
            raise UsageError(f"knob {name!r}: no such knob; expected one of {', '.join(KNOBS)}")
    states = load_knobs(_client(server, token_file))
    shown = [k for k in states.knobs if not names or k.name in names]
    if json_:
        rows = {k.name: asdict(k) for k in shown}
        print(json.dumps({"version": states.version, "step": states.step, "knobs": rows}, indent=2))
        return
    _print_states(states, {k.name for k in shown})


def _print_states(states: KnobStates, names: set[str]) -> None:
    print(f"version {states.version}, in effect since step {states.step}")
    rows = [
        [k.name, str(k.value), str(k.default), str(k.changed.step) if k.changed else "-", k.expected, k.meaning]
        for k in states.knobs if k.name in names
    ]
    print_table(["knob", "value", "default", "since step", "expected", "meaning"], rows)


@app.command("set")
def set_(
    server: Server,
    assignments: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="For example gamma=0.7 k=2; all are applied, or none.")],
    if_version: IfVersion = None,
    reason: Reason = "",
    expires: Expires = None,
    json_: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Change knobs together at one scheduler step; prints the new version and that step."""
    changes = parse_assignments(assignments)
    if expires is not None and not 0 < expires <= 86_400:
        raise UsageError(f"--expires {expires:g}: expected a number of seconds above 0 and up to 86400")
    _check_reason(reason)
    client = _client(server, token_file)
    _print_applied(apply_change(client, changes, if_version=if_version, reason=reason, expires_s=expires), json_)


@app.command("history")
def history(server: Server, json_: Json = False, token_file: TokenFile = None) -> None:
    """List the applied changes, oldest first."""
    rows = _client(server, token_file).history()
    if json_:
        print(json.dumps(rows, indent=2))
        return
    header = ["version", "step", "time (UTC)", "knob", "old", "new", "source", "actor", "reason"]
    print_table(header, [_history_row(h) for h in rows])


@app.command("revert")
def revert(server: Server, reason: Reason = "", json_: Json = False, token_file: TokenFile = None) -> None:
    """Undo the newest set of changes."""
    _check_reason(reason)
    _print_applied(revert_change(_client(server, token_file), reason), json_)


def _check_reason(reason: str) -> None:
    if len(reason) > 100:
        raise UsageError(f"--reason has {len(reason)} characters: expected at most 100")


def _history_row(h: dict[str, Any]) -> list[str]:
    when = datetime.fromtimestamp(h["wall_ns"] / 1e9, UTC)
    return [
        str(h["version"]), str(h["step"]), f"{when:%Y-%m-%d %H:%M:%S}", h["name"], str(h["old"]), str(h["new"]),
        h["source"], h["actor"], h["reason"],
    ]


def _print_applied(applied: Applied, json_: bool) -> None:
    if json_:
        changes = [{"name": n, "old": old, "new": new} for n, old, new in applied.changes]
        print(json.dumps({"version": applied.version, "step": applied.step, "changes": changes}))
        return
    print(f"version {applied.version}, in effect at step {applied.step}")
    for name, old, new in applied.changes:
        print(f"{name}  {old} -> {new}")
