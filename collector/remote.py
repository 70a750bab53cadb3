"""Reads a live collector over Arrow Flight."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyarrow import flight

from collector.query import MAX_DEADLINE_S
from collector.reader import Closing
from pbkv.errors import PbkvError, Unreachable, UsageError

#: What the client waits beyond the server's own deadline before it calls the collector unreachable, seconds.
_GRACE_S = 3.0
_FLIGHT_ERRORS = (flight.FlightError, pa.ArrowException, OSError)


class FlightReader(Closing):
    """Reads a live collector. Connects on first use and again after it was away. One per thread."""

    live = True

    def __init__(self, source: str, token: str) -> None:
        scheme, _, address = source.partition("://")
        host, _, port = address.rstrip("/").rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise UsageError(f"source {source!r}: expected {scheme}://HOST:PORT, for example {scheme}://127.0.0.1:5615")
        self.source = source
        if not (token.isascii() and (token.isprintable() or not token)):
            raise UsageError(f"collector {source}: the token given has characters that no token has; name the right token file")
        self._headers = [(b"authorization", f"Bearer {token}".encode())]
        self._trust = trusted_roots() if source.startswith("grpc+tls://") else {}
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
            self._client = flight.connect(self.source, generic_options=[("grpc.enable_http_proxy", 0)], **self._trust)
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



def trusted_roots() -> dict[str, bytes]:
    """Certificates a TLS collector must be signed by: the file PBKV_COLLECTOR_CA, else those of the system. Raises UsageError."""
    path = os.environ.get("PBKV_COLLECTOR_CA")
    if not path:
        return {}
    try:
        return {"tls_root_certs": Path(path).read_bytes()}
    except OSError as error:
        raise UsageError(f"PBKV_COLLECTOR_CA {path!r}: cannot be read ({error.strerror}); name a PEM file") from None
