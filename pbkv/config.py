"""Start-up settings of a server, from the JSON file named by PBKV_CONFIG. What can change while serving is a knob instead."""

import json
import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pbkv.errors import UsageError
from pbkv.knobs import KNOBS, Value, parse_changes

ENV = "PBKV_CONFIG"
#: Most that a scheduler step can be made to wait for predictions, milliseconds.
MAX_BUDGET_MS = 1000
#: Largest number any setting can mean; keeps infinity and NaN out.
_MOST = 1e30
#: JSON values accepted for a setting of each type, and what to call them.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a string"), "float": ((int, float), "a number"), "int": ((int,), "a whole number"), "dict": ((dict,), "an object"),
}


@dataclass(frozen=True)
class ServerConfig:
    """Every setting has a default that works on one machine; an empty file is a valid one."""

    #: Name of this server in the event log, up to 32 bytes.
    server: str = "sglang"
    #: ZMQ endpoint of the event stream; port * takes a free one (shown by GET /pbkv/state). Empty = no events.
    events: str = "tcp://127.0.0.1:*"
    #: ZMQ endpoint that answers replay requests.
    replay: str = "tcp://127.0.0.1:*"
    #: Where consoles reach this server's HTTP interface; empty = made from SGLang's host and port.
    control_url: str = ""
    #: File with the token that /pbkv requests must carry; empty = none, loopback only.
    token_file: str = ""
    #: Host-to-device bandwidth of one rank, bytes per second.
    link_bytes_per_s: float = 25e9
    #: Typical duration of a decode step, seconds; with the bandwidth it gives the default prefetch budget.
    decode_step_s: float = 0.02
    #: Folder of a trained predictor (pbkv train); empty = the online Markov predictor alone.
    predictor: str = ""
    #: Time that a trained predictor may take of a scheduler step, milliseconds; who is left is answered by the online chain.
    predict_budget_ms: float = 2.0
    #: Bytes of recent messages kept for collectors that missed some.
    replay_bytes: int = 64 << 20
    #: Initial values of knobs.
    knobs: dict[str, Any] = field(default_factory=dict[str, Any])

    def knob_values(self) -> dict[str, Value]:
        """Values the knobs start with: defaults, the budget from link and step time, then the file's."""
        values: dict[str, Value] = {k.name: k.default for k in KNOBS.values()}
        values["prefetch_budget"] = int(min(self.link_bytes_per_s * self.decode_step_s, KNOBS["prefetch_budget"].maximum or 0))
        if self.knobs:
            values.update(parse_changes(self.knobs))
        return values

    def of_replica(self, number: int) -> "ServerConfig":
        """The settings of a data-parallel replica, counted from 0: the same but for endpoints with a fixed port."""
        return replace(self, events=_moved(self.events, number), replay=_moved(self.replay, number))

    def token(self) -> str | None:
        """The control token, or None. Raises UsageError when its file cannot be read."""
        if not self.token_file:
            return None
        try:
            token = Path(self.token_file).read_bytes().strip()
        except OSError as error:
            raise UsageError(f"token_file = {self.token_file!r}: {error.strerror}; create it or remove the setting") from None
        # An empty token would guard nothing, and others cannot travel in a header.
        if not token or not all(0x21 <= byte <= 0x7E for byte in token):
            raise UsageError(f"token_file = {self.token_file!r}: expected one word of printable ASCII; write a token into it")
        return token.decode()


def _moved(endpoint: str, replica: int) -> str:
    """Two ports on for each replica, one for events and one for replay; what is no fixed port stays, for the publisher to judge."""
    before, colon, port = endpoint.rpartition(":")
    return f"{before}{colon}{int(port) + 2 * replica}" if port.isascii() and port.isdigit() and port != "0" else endpoint


def load_config(path: str | None = None, *, server: str = ServerConfig.server) -> ServerConfig:
    """Read and check the file named by `path` or PBKV_CONFIG; neither set gives the defaults. `server` is the name of a server that the
    file does not name. Raises UsageError.
    """
    path = path or os.environ.get(ENV)
    if not path:
        return ServerConfig(server=server)
    try:
        data = json.loads(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"settings file {path!r}: {error.strerror}") from None
    except RecursionError:
        raise UsageError(f"settings file {path!r}: not JSON of a sane depth") from None
    except ValueError as error:
        raise UsageError(f"settings file {path!r}: not JSON ({error})") from None
    return parse_config(data, path, server=server)


def parse_config(data: object, path: str, *, server: str = ServerConfig.server) -> ServerConfig:
    """Settings in a decoded file. Raises UsageError that names the file and the setting."""
    if not isinstance(data, dict):
        raise UsageError(f"{path}: expected a JSON object")
    settings: dict[str, Any] = {str(k): v for k, v in data.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    known = {f.name: f for f in fields(ServerConfig)}
    for name, value in settings.items():
        if name not in known:
            raise UsageError(f"{path}: {_show(name)}: no such setting; expected one of {', '.join(known)}")
        expected = _expected(known[name].default, value)
        if expected:
            raise UsageError(f"{path}: {name} = {_show(value)}: expected {expected}")
    config = ServerConfig(**{**settings, "server": settings.get("server", server)})
    if not 0 < len(config.server.encode(errors="replace")) <= 32 or not config.server.isprintable():
        raise UsageError(f"{path}: server = {_show(config.server)}: expected 1 to 32 bytes of printable text")
    if config.replay_bytes < 1 << 20:
        raise UsageError(f"{path}: replay_bytes = {config.replay_bytes}: expected at least 1048576")
    if config.predict_budget_ms > MAX_BUDGET_MS:
        raise UsageError(f"{path}: predict_budget_ms = {config.predict_budget_ms:g}: expected a number above 0, at most {MAX_BUDGET_MS}")
    config.knob_values()
    return config


def _expected(default: object, value: object) -> str | None:
    """What `value` should have been, by the setting's default; None when it fits. Only `knobs` has no plain default."""
    if isinstance(default, str):
        return None if isinstance(value, str) else "a string"
    if isinstance(default, int):
        return None if isinstance(value, int) and not isinstance(value, bool) else "a whole number"
    if isinstance(default, float):
        fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MOST
        return None if fits else "a number above 0"
    return None if isinstance(value, dict) else "an object"


def _show(value: object) -> str:
    # Whatever a file holds, a message stays short and printable.
    text = ascii(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."
