"""The live read path: Arrow Flight on loopback. A ticket is SQL with parameters and a deadline; the answer is an Arrow table.

Every call needs the token, runs on its own cursor behind the statement guard, and ends at its deadline or when the client leaves.
"""

import atexit
import ctypes
import hmac
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import pyarrow as pa
from pyarrow import flight

from collector.address import taken
from collector.guard import MAX_SQL, Guard
from collector.macros import MACROS
from collector.places import Places
from collector.query import MAX_BYTES, MAX_DEADLINE_S, MAX_ROWS, Cancelled, Watcher, run
from collector.store import Store
from pbkv.errors import PbkvError, UsageError

#: Queries that run at the same time; more wait for a free place for at most their deadline. The client with the fewest gets the next.
MAX_QUERIES = 8
#: Time for running calls to end when the server stops, seconds.
_END_S = 3.0
#: Longest ticket: the SQL, JSON escapes, parameters.
_MAX_TICKET = 8 * MAX_SQL


class _Authorized(flight.ServerMiddleware):
    pass


class _TokenCheck(flight.ServerMiddlewareFactory):
    """Refuses every call, before anything of it is read, that does not carry the token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[str]]) -> flight.ServerMiddleware | None:
        given = next((values[0] for name, values in headers.items() if name.lower() == "authorization" and values), "")
        if not hmac.compare_digest(given.encode(errors="replace"), self._expected):
            raise flight.FlightUnauthenticatedError("the token is not this collector's")
        return _Authorized()


def failure(error: PbkvError) -> flight.FlightServerError:
    """`error` as it crosses the wire; the client makes the same class of it again."""
    kind = "usage" if isinstance(error, UsageError) else "failed"
    return flight.FlightServerError(str(error), json.dumps({"kind": kind, "text": str(error)}).encode())


class FlightReads(flight.FlightServerBase):
    """Serves `store`. The port is known after construction: `port`. `close` interrupts what runs and ends every thread."""

    def __init__(
        self, store: Store, host: str, port: int, token: str, status: Callable[[], dict[str, Any]],
        *, tls: tuple[bytes, bytes] | None = None, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES, max_queries: int = MAX_QUERIES,
    ) -> None:
        """Bind. `tls`: certificate chain and key, PEM. Raises UsageError that names the address when it cannot be had."""
        if reason := taken(host, port):
            raise UsageError(_bind_error(host, port, reason))
        try:
            scheme, certificates = ("grpc+tls", [tls]) if tls else ("grpc", None)
            super().__init__(f"{scheme}://{host}:{port}", middleware={"token": _TokenCheck(token)}, tls_certificates=certificates)
        except (pa.ArrowException, OSError):
            raise UsageError(_bind_error(host, port, "in use" + (", or the certificate does not fit its key" if tls else ""))) from None
        self._store, self._status = store, status
        self._guard = Guard(MACROS)
        self._watcher = Watcher()
        self._places = Places(max_queries)
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self.queries = self.failed = 0

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        try:
            self.queries += 1
            return flight.RecordBatchStream(self._answer(context, ticket.ticket))
        except Cancelled:
            self.failed += 1
            raise flight.FlightCancelledError("the client left") from None
        except PbkvError as error:
            self.failed += 1
            raise failure(error) from None

    def _answer(self, context: flight.ServerCallContext, ticket: bytes) -> pa.Table:
        sql, params, deadline_s = _read_ticket(ticket)
        self._guard.check(sql)
        start = time.monotonic()
        with self._places.place(context.peer(), deadline_s) as got:
            if not got:
                raise PbkvError(f"the collector is busy with other queries and had no place within {deadline_s:g} s; ask again")
            left_s = max(0.1, deadline_s - (time.monotonic() - start))
            with self._store.cursor() as cursor:
                return run(
                    cursor, self._watcher, sql, params, left_s,
                    gone=context.is_cancelled, max_rows=self._max_rows, max_bytes=self._max_bytes,
                )

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        """`status`: the collector's counters as JSON."""
        if action.type != "status":
            raise failure(UsageError(f"action {action.type!r}: expected status"))
        return [json.dumps(self._status()).encode()]

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        return [("status", "counters of the collector as JSON")]

    def close(self) -> None:
        """Refuse new calls, interrupt what runs and end; a client that reads nothing of its answer is not waited for."""
        self._watcher.close()
        ending = threading.Thread(target=self._end, name="pbkv-flight-end", daemon=True)
        ending.start()
        ending.join(_END_S)
        if ending.is_alive():
            # gRPC waits for that client for ever, in the destructor and when the process ends; the store does not depend on either.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
            _lingering.set()
            atexit.register(leave, 0)

    def _end(self) -> None:
        self.shutdown()
        self.wait()


_lingering = threading.Event()


def leave(code: int, last_words: str = "") -> int:
    """End the process with `code` at once when a stalled client would keep it from ending by itself, saying `last_words` on stderr; else
    just return `code`."""
    if _lingering.is_set():
        sys.stderr.write(f"{last_words}\n" if last_words else "")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _bind_error(host: str, port: int, reason: str) -> str:
    return f"listen address {host}:{port}: cannot be bound ({reason}); name a free port with --listen"


def _read_ticket(ticket: bytes) -> tuple[str, dict[str, Any] | None, float]:
    try:
        if len(ticket) > _MAX_TICKET:
            raise UsageError(f"ticket of {len(ticket)} bytes: expected at most {_MAX_TICKET}")
        data: object = json.loads(ticket)
    except (ValueError, RecursionError):
        raise UsageError('ticket: expected JSON {"sql": TEXT, "params": {NAME: VALUE}, "deadline_s": SECONDS}') from None
    fields = cast(dict[str, object], data) if isinstance(data, dict) else {}
    sql, params, deadline_s = fields.get("sql"), fields.get("params"), fields.get("deadline_s", 10.0)
    if not isinstance(sql, str):
        raise UsageError("ticket: sql must be text")
    if params is not None and not isinstance(params, dict):
        raise UsageError("ticket: params must be an object of names and values")
    if isinstance(deadline_s, bool) or not isinstance(deadline_s, int | float) or not deadline_s > 0:
        raise UsageError("ticket: deadline_s must be a number of seconds above 0")
    return sql, cast(dict[str, Any] | None, params), min(float(deadline_s), MAX_DEADLINE_S)
