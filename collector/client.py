"""Opens SOURCE: a live collector (grpc://HOST:PORT) or a .duckdb file, both as a `Reader`."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import pyarrow as pa
from pyarrow import flight

from collector.database import connect, schema_version
from collector.guard import Guard
from collector.query import MAX_DEADLINE_S, Watcher, run
from collector.reader import Reader
from collector.summary import file_status, macros
from collector.token import reader_token
from pbkv.errors import PbkvError, Unreachable, UsageError

#: What the client waits beyond the server's own deadline before it calls the collector unreachable, seconds.
_GRACE_S = 3.0


def open(source: str, token: str | None = None) -> Reader:
    """A reader of `source`. Raises UsageError for a source that can never be read; a collector that is down raises Unreachable on use."""
    if source.startswith("grpc://"):
        return FlightReader(source, reader_token(token))
    if "://" in source:
        raise UsageError(f"source {source!r}: expected grpc://HOST:PORT of a collector, or a .duckdb file")
    return FileReader(Path(source))


class _Closing:
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class FlightReader(_Closing):
    """Reads a live collector. Connects on first use and again after it was away. One per thread."""

    live = True

    def __init__(self, source: str, token: str) -> None:
        host, _, port = source.removeprefix("grpc://").rstrip("/").rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise UsageError(f"source {source!r}: expected grpc://HOST:PORT, for example grpc://127.0.0.1:5615")
        self.source = source
        if not (token.isascii() and (token.isprintable() or not token)):
            raise UsageError(f"collector {source}: the token given has characters that no token has; name the right token file")
        self._headers = [(b"authorization", f"Bearer {token}".encode())]
        self._client: flight.FlightClient | None = None

    def sql(self, query: str, params: Mapping[str, Any] | None = None, *, deadline_s: float = 10.0) -> pa.Table:
        try:
            ticket = json.dumps({"sql": query, "params": dict(params) if params else None, "deadline_s": deadline_s}, default=str)
        except (TypeError, ValueError) as error:
            raise UsageError(f"params: cannot be sent ({error})") from None
        options = self._options(min(deadline_s, MAX_DEADLINE_S))
        try:
            return self._connected().do_get(flight.Ticket(ticket.encode()), options).read_all()
        except _FLIGHT_ERRORS as error:
            raise self._translate(error, deadline_s) from None

    def status(self) -> dict[str, Any]:
        try:
            results = list(self._connected().do_action(flight.Action("status", b""), self._options(5.0)))
            return cast(dict[str, Any], json.loads(results[0].body.to_pybytes()))
        except _FLIGHT_ERRORS as error:
            raise self._translate(error, 5.0) from None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> flight.FlightClient:
        if self._client is None:
            # A proxy named in the environment must never see the token, nor stand between us and loopback.
            self._client = flight.connect(self.source, generic_options=[("grpc.enable_http_proxy", 0)])
        return self._client

    def _options(self, deadline_s: float) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=deadline_s + _GRACE_S, headers=self._headers)

    def _translate(self, error: Exception, deadline_s: float) -> PbkvError:
        extra = getattr(error, "extra_info", None)
        if extra:
            told = cast(dict[str, str], json.loads(extra))
            return (UsageError if told["kind"] == "usage" else PbkvError)(told["text"])
        if isinstance(error, flight.FlightUnauthenticatedError):
            return UsageError(
                f"collector {self.source}: refuses the token; give the one in the collector's state folder with --token-file "
                "or PBKV_COLLECTOR_TOKEN"
            )
        # The channel backs off for longer and longer; a new one tries at once, so a collector that is back is seen at the next call.
        self.close()
        if isinstance(error, flight.FlightTimedOutError):
            return Unreachable(f"collector {self.source}: no answer within {deadline_s + _GRACE_S:g} s; is it overloaded or suspended?")
        return Unreachable(f"collector {self.source}: does not answer; start it with `pbkv collect`, or check the address")


_FLIGHT_ERRORS = (flight.FlightError, pa.ArrowException, OSError)


class FileReader(_Closing):
    """Reads a .duckdb file that no collector has open. One per thread."""

    live = False

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "no such file"
            raise UsageError(f"source {str(path)!r}: {what}; name a .duckdb file written by `pbkv collect`, or grpc://HOST:PORT")
        self.source = str(path)
        self._path = path
        self._db = connect(path, read_only=True)
        try:
            self._schema, self._digest = schema_version(self._db, path)
        except BaseException:
            self._db.close()
            raise
        self._guard = Guard(macros(self._db))
        self._watcher = Watcher()

    def sql(self, query: str, params: Mapping[str, Any] | None = None, *, deadline_s: float = 10.0) -> pa.Table:
        self._guard.check(query)
        with self._db.cursor() as cursor:
            return run(cursor, self._watcher, query, params, min(deadline_s, MAX_DEADLINE_S))

    def status(self) -> dict[str, Any]:
        with self._db.cursor() as cursor:
            return {**file_status(cursor, self._path), "schema_version": self._schema, "digest": self._digest}

    def close(self) -> None:
        self._watcher.close()
        self._db.close()
