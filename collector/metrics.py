"""`/metrics` for Prometheus: a small HTTP server with one page, on loopback unless told otherwise. It needs no token: it shows counters
and the names of servers, no events."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from collector.status import prometheus
from pbkv.errors import UsageError

_TIMEOUT_S = 10


class MetricsPage:
    """Serves the page until `close`. The address is in `url`."""

    def __init__(self, host: str, port: int, status: Callable[[], dict[str, Any]]) -> None:
        """Bind. Raises UsageError that names the address when it cannot be had."""
        handler = type("Handler", (_Handler,), {"status": staticmethod(status)})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            text = f"metrics address {host}:{port}: cannot be bound ({reason.lower()}); name a free port with --metrics"
            raise UsageError(text) from None
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, name="pbkv-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    status: Callable[[], dict[str, Any]]
    timeout = _TIMEOUT_S
    server_version = "pbkv"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = prometheus(self.status()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
