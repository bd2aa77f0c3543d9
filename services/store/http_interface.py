"""ClickHouse's HTTP interface, as much as curl, clickhouse-connect and clickhouse-go need.

Also `/health/live`, `/health/ready`, `/metrics` and `/dashboards/`. Every connection has a thread;
there are at most CONNECTIONS of them, each request has a time to arrive in whole, and queries are
bounded by the engine.
"""

import io
import json
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest

from services.runtime.health import PortTakenError
from services.store.dashboards_site import DashboardsSite, Page, Request, is_page
from services.store.engine import Answer, Engine, EngineError, Query
from services.store.http_body import BodyError, compressed, read_body
from services.store.http_guard import intrusion
from services.store.http_patience import Received, turn_away
from services.store.http_query import answer_headers, parameters_of, query_of, status_of
from services.store.native_hello import hello, is_hello
from services.store.rebuild import Rebuilds
from services.store.settings import StoreSettings
from services.store.users import Role, Users, credentials
from services.store.wall import NOT_RAISED, Wall

CONNECTIONS: Final = 64
IDLE_TIMEOUT_S: Final = 30
REQUEST_TIMEOUT_S: Final = 30  # for all of a request
INSERT_TIMEOUT_S: Final = 600  # for the body, when it is the admin's
MAX_QUERY_BYTES: Final = 256 * 1024
MAX_INSERT_BYTES: Final = 128 * 1024 * 1024
AUTHENTICATION_FAILED: Final = 516
VERSION_DIGITS: Final = 10
TEXT: Final = "text/plain; charset=UTF-8"
QUERY_SECONDS = Histogram("tidegauge_store_query_seconds", "Time that answered queries took")
WALL = Gauge("tidegauge_store_wall", "Whether the store can open nothing but what it serves")
REFUSED = Counter("tidegauge_store_queries_failed", "Queries that ended with an error", ["code"])


@dataclass(frozen=True)
class Site:
    """What the handlers serve, to whom, and the names by which clients may know it."""

    engine: Engine
    users: Users
    is_ready: Callable[[], bool]
    names: tuple[str, ...]
    rebuilds: Rebuilds | None
    dashboards: DashboardsSite
    wall: Wall


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            turn_away(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away while it is answered is no event."""


def serve_sql(
    settings: StoreSettings,
    users: Users,
    engine: Engine,
    is_ready: Callable[[], bool],
    *,
    rebuilds: Rebuilds | None = None,
    wall: Wall = NOT_RAISED,
) -> ThreadingHTTPServer:
    """Serve in daemon threads from now on. Raises PortTakenError.

    rebuilds: who rebuilds when the admin asks for it with `POST /rebuild`; None where nobody can.
    """
    host, port = settings.host, settings.port("store")
    WALL.set(wall.stands)

    class Handler(_Handler):
        site = Site(
            engine=engine,
            users=users,
            is_ready=is_ready,
            names=(host, *settings.allowed_hosts),
            rebuilds=rebuilds,
            dashboards=DashboardsSite(engine, settings.dashboards_dir),
            wall=wall,
        )

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
    site: Site
    received: Received

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.received = Received(self.connection, IDLE_TIMEOUT_S, REQUEST_TIMEOUT_S)
        self.rfile = io.BufferedReader(self.received)

    def handle_one_request(self) -> None:
        super().handle_one_request()
        self.received.next_request()

    def do_GET(self) -> None:
        path, _, target = self.path.partition("?")
        if path == "/metrics":
            self._send(HTTPStatus.OK, generate_latest(), {"Content-Type": CONTENT_TYPE_LATEST})
        elif path in ("/health/live", "/health/ready"):
            good = path == "/health/live" or self.site.is_ready()
            status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
            self._send(status, f"{'' if good else 'not '}{path.rpartition('/')[2]}\n".encode())
        elif path == "/health/wall":
            wall = self.site.wall
            status = HTTPStatus.OK if wall.stands else HTTPStatus.SERVICE_UNAVAILABLE
            self._send(status, f"{wall.sentence}\n".encode())
        elif path == "/ping" or (path == "/" and not target):
            self._send(HTTPStatus.OK, b"Ok.\n")
        else:
            self._serve_query(path, target)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        path, _, target = self.path.partition("?")
        self._serve_query(path, target)

    def _serve_query(self, path: str, target: str) -> None:
        reason = intrusion(self.headers, self.site.names, linked=is_page(path))
        if reason is not None:
            self._refuse(HTTPStatus.FORBIDDEN, reason)
        elif path == "/rebuild" and self.site.rebuilds is not None:
            self._rebuild(self.site.rebuilds, parameters_of(target))
        elif path.split("/")[1] == "dashboards":
            self._show_dashboards(path)
        elif path != "/":
            self._refuse(HTTPStatus.NOT_FOUND, "There is no handler for this path.")
        else:
            self._answer_query(parameters_of(target))

    def _answer_query(self, given: dict[str, str]) -> None:
        query_id = given.get("query_id") or str(uuid.uuid4())
        try:
            role = self.site.users.role_of(*credentials(self.headers, given))
            query = query_of(given, self._body(role), may_write=role is Role.ADMIN)
            with QUERY_SECONDS.time():
                answer = self._hello(query, given) or self.site.engine.answer(query)
        except BodyError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except EngineError as error:
            REFUSED.labels(str(error.code)).inc()
            headers = {"X-ClickHouse-Exception-Code": str(error.code)}
            if error.code == AUTHENTICATION_FAILED:
                self.close_connection = True  # the body was not read
                headers["Connection"] = "close"
            self._send(status_of(error.code), f"{error}\n".encode(), headers)
        else:
            wanted = (
                given.get("enable_http_compression") == "1" or "client_protocol_version" in given
            )
            data, encoding = compressed(answer.data, self.headers, wanted)
            headers = answer_headers(answer, query_id)
            self._send(HTTPStatus.OK, data, headers | _encoding(encoding))

    def _show_dashboards(self, path: str) -> None:
        """The page of dashboards and its queries, for whoever may read; a browser asks who."""
        request = Request(
            self.command,
            path,
            self.headers,
            lambda limit: read_body(self.rfile, self.headers, limit),
        )
        try:
            self.site.users.role_of(*credentials(self.headers, {}))
            page = self.site.dashboards.answer(request)
        except BodyError as error:
            page = Page(HTTPStatus.BAD_REQUEST, f"{error}\n".encode(), {"Content-Type": TEXT})
        except EngineError as error:
            challenge = {"WWW-Authenticate": 'Basic realm="Tidegauge, user reader"'}
            page = Page(HTTPStatus.UNAUTHORIZED, f"{error}\n".encode(), challenge)
        if self.command == "POST" and page.status >= HTTPStatus.BAD_REQUEST:
            self.close_connection = True  # the body may not have been read
            page.headers["Connection"] = "close"
        self._send(page.status, page.body, page.headers)

    def _rebuild(self, rebuilds: Rebuilds, given: dict[str, str]) -> None:
        """POST asks for a rebuild, GET for how it stands; both are the admin's."""
        try:
            role = self.site.users.role_of(*credentials(self.headers, given))
        except EngineError:
            role = Role.READER
        if role is not Role.ADMIN:
            self._refuse(HTTPStatus.FORBIDDEN, "Only the admin can rebuild.")
            return
        if self.command == "POST":
            rebuilds.ask(force=given.get("force") == "1")
        body = json.dumps(rebuilds.status.as_json()) + "\n"
        self._send(HTTPStatus.OK, body.encode(), {"Content-Type": "application/json"})

    def _body(self, role: Role) -> bytes:
        if self.command != "POST":
            return b""
        if role is Role.ADMIN:
            self.received.allow(INSERT_TIMEOUT_S)
            return read_body(self.rfile, self.headers, MAX_INSERT_BYTES)
        return read_body(self.rfile, self.headers, MAX_QUERY_BYTES)

    def _hello(self, query: Query, given: Mapping[str, str]) -> Answer | None:
        """The answer to the first query of clickhouse-go, where it is that."""
        version = given.get("client_protocol_version", "")
        number = int(version) if version.isdecimal() and len(version) < VERSION_DIGITS else 0
        if not is_hello(query.text, query.output_format, number):
            return None
        engine = self.site.engine.answer(Query("SELECT version()", "TSVRaw")).data.decode().strip()
        return Answer(hello(socket.gethostname(), engine, number), "Native", 1, 1, 0.0)

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        """Answer without having read the body, so the connection cannot go on."""
        self.close_connection = True
        self._send(status, f"{sentence}\n".encode(), {"Connection": "close"})

    def _send(
        self, status: HTTPStatus, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": TEXT} | dict(headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are counted, not logged: they may hold a password."""


def _encoding(name: str) -> dict[str, str]:
    return {"Content-Encoding": name} if name else {}
