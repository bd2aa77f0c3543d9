"""`/health/live`, `/health/ready` and `/metrics` of a service, on loopback unless told otherwise.

The evaluator (Faust) and the store have web servers of their own and answer the same paths there.
"""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from services.runtime.hosts import LOOPBACK, is_known


class PortTakenError(OSError):
    """Another process listens on a port that a service needs."""


def serve_health(host: str, port: int, is_ready: Callable[[], bool]) -> ThreadingHTTPServer:
    """Serve health and metrics in a daemon thread. Raises PortTakenError.

    On loopback it is only answered under a name or number of this machine: see hosts.py.
    """
    names = LOOPBACK | {host}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if host in LOOPBACK and not is_known(self.headers.get("Host", ""), names, True):
                self._answer(403, b"this is not a name of this machine\n")
            elif self.path == "/metrics":
                self._answer(200, generate_latest(), CONTENT_TYPE_LATEST)
            elif self.path == "/health/live":
                self._answer(200, b"live\n")
            elif self.path == "/health/ready":
                ready = is_ready()
                self._answer(200 if ready else 503, b"ready\n" if ready else b"not ready\n")
            else:
                self._answer(404, b"not found\n")

        def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged: a probe every second says nothing."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise PortTakenError(f"port {port} on {host} is taken: {error.strerror}") from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server
