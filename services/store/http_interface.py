"""ClickHouse's HTTP interface on loopback, as much as curl and clickhouse-connect need to read.

Also `/health/live`, `/health/ready` and `/metrics`. Every connection has a thread; there are at
most CONNECTIONS of them, and queries are bounded by the engine.
"""

import json
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Histogram, generate_latest

from services.runtime.health import PortTakenError
from services.store.engine import Answer, Engine, EngineError
from services.store.http_query import content_type_of, query_of, status_of

CONNECTIONS: Final = 64
IDLE_TIMEOUT_S: Final = 30
MAX_QUERY_BYTES: Final = 256 * 1024
QUERY_SECONDS = Histogram("tidegauge_store_query_seconds", "Time that answered queries took")
REFUSED = Counter("tidegauge_store_queries_failed", "Queries that ended with an error", ["code"])


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away while it is answered is no event."""


def serve_sql(
    host: str, port: int, engine: Engine, is_ready: Callable[[], bool]
) -> ThreadingHTTPServer:
    """Serve in daemon threads from now on. Raises PortTakenError."""

    class Handler(_Handler):
        sql = engine
        ready = staticmethod(is_ready)

    try:
        server = _Server((host, port), Handler)
    except OSError as error:
        raise PortTakenError(f"port {port} on {host} is taken: {error.strerror}") from error
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT_S
    disable_nagle_algorithm = True
    sql: Engine
    ready: Callable[[], bool]

    def do_GET(self) -> None:
        path, _, target = self.path.partition("?")
        if path == "/" and target:
            self._answer_query(target, "")
        elif path in ("/", "/ping"):
            self._send(HTTPStatus.OK, b"Ok.\n")
        elif path == "/metrics":
            self._send(HTTPStatus.OK, generate_latest(), CONTENT_TYPE_LATEST)
        elif path == "/health/live":
            self._send(HTTPStatus.OK, b"live\n")
        elif path == "/health/ready":
            ready = self.ready()
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            self._send(status, b"ready\n" if ready else b"not ready\n")
        else:
            self._send(HTTPStatus.NOT_FOUND, b"There is no handler for this path.\n")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        path, _, target = self.path.partition("?")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "A Content-Length is needed.")
        elif int(length) > MAX_QUERY_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The query is too long.")
        elif path != "/":
            self._refuse(HTTPStatus.NOT_FOUND, "There is no handler for this path.")
        else:
            body = self.rfile.read(int(length))
            self._answer_query(target, body.decode(errors="replace"))

    def _answer_query(self, target: str, body: str) -> None:
        try:
            with QUERY_SECONDS.time():
                answer = self.sql.answer(query_of(target, body))
        except EngineError as error:
            REFUSED.labels(str(error.code)).inc()
            self._send(
                status_of(error.code),
                f"{error}\n".encode(),
                headers={"X-ClickHouse-Exception-Code": str(error.code)},
            )
        else:
            kind = content_type_of(answer.output_format)
            self._send(HTTPStatus.OK, answer.data, kind, _answer_headers(answer))

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        """Answer without having read the body, so the connection cannot go on."""
        self.close_connection = True
        self._send(status, f"{sentence}\n".encode(), headers={"Connection": "close"})

    def _send(
        self,
        status: HTTPStatus,
        body: bytes,
        kind: str = "text/plain; charset=UTF-8",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are counted, not logged."""


def _answer_headers(answer: Answer) -> dict[str, str]:
    summary = {
        "read_rows": str(answer.rows_read),
        "read_bytes": str(answer.bytes_read),
        "elapsed_ns": str(int(answer.elapsed_s * 1e9)),
    }
    return {
        "X-ClickHouse-Server-Display-Name": socket.gethostname(),
        "X-ClickHouse-Query-Id": str(uuid.uuid4()),
        "X-ClickHouse-Format": answer.output_format,
        "X-ClickHouse-Timezone": "UTC",
        "X-ClickHouse-Summary": json.dumps(summary),
    }
