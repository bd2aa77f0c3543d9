"""ClickHouse's HTTP interface, as far as curl, clickhouse-connect and clickhouse-go need it.

Also `/health/live`, `/health/ready`, `/health/wall`, `/metrics` and `/dashboards/`. Every
connection has a thread; there are at most 64. Each request must arrive completely within a timeout,
and the engine bounds queries.
"""

import io
import json
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest

from services.runtime.health import PortTakenError
from services.store.dashboards_site import DashboardsSite, Page, Request, is_page
from services.store.engine import Answer, Engine, EngineError, Query
from services.store.http_body import BodyError, compressed, read_body
from services.store.http_connections import ConnectionServer, Departures, Responses
from services.store.http_guard import intrusion
from services.store.http_head import Head, HeadError, read_head
from services.store.http_patience import Received, linger
from services.store.http_query import answer_headers, parameters_of, query_of, status_of
from services.store.native_hello import hello, is_hello
from services.store.rebuild import Rebuilds
from services.store.settings import StoreSettings
from services.store.users import Role, Users, credentials
from services.store.wall import NOT_RAISED, Wall

IDLE_TIMEOUT_S: Final = 30
REQUEST_TIMEOUT_S: Final = 30  # for a whole request
INSERT_TIMEOUT_S: Final = 600  # for the body of an admin's request
MAX_QUERY_BYTES: Final = 256 * 1024
MAX_INSERT_BYTES: Final = 128 * 1024 * 1024
VERSION_DIGITS: Final = 10
TEXT: Final = "text/plain; charset=UTF-8"
# Browsers must not treat any response as a page, whatever its content.
NO_PAGE: Final = {
    "Content-Type": TEXT,
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
}
QUERY_SECONDS = Histogram("tidegauge_store_query_seconds", "Duration of answered queries")
WALL = Gauge("tidegauge_store_wall", "Whether the store is confined to its own files")
REFUSED = Counter("tidegauge_store_queries_failed", "Queries that ended with an error", ["code"])


@dataclass(frozen=True)
class Served:
    """What the handlers serve, the users, and the names accepted as Host."""

    engine: Engine
    users: Users
    is_ready: Callable[[], bool]
    host: str
    names: tuple[str, ...]
    rebuilds: Rebuilds | None
    dashboards: DashboardsSite
    departures: Departures
    responses: Responses
    wall: Wall


def serve_sql(
    settings: StoreSettings,
    users: Users,
    engine: Engine,
    is_ready: Callable[[], bool],
    *,
    rebuilds: Rebuilds | None = None,
    wall: Wall = NOT_RAISED,
) -> ConnectionServer:
    """Start serving in daemon threads. Raises PortTakenError.

    rebuilds: handles the admin's `POST /rebuild`; None if rebuilds are unavailable.
    """
    host, port = settings.host, settings.port("store")
    WALL.set(wall.stands)

    class Handler(_Handler):
        served = Served(
            engine=engine,
            users=users,
            is_ready=is_ready,
            host=host,
            names=settings.allowed_hosts,
            rebuilds=rebuilds,
            dashboards=DashboardsSite(settings.dashboards_dir),
            departures=Departures(),
            responses=Responses(settings.query_slots * settings.query_max_result_bytes),
            wall=wall,
        )

    try:
        server = ConnectionServer((host, port), Handler)
    except OSError as error:
        raise PortTakenError(f"port {port} on {host} is taken: {error.strerror}") from error
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT_S
    disable_nagle_algorithm = True
    server: ConnectionServer
    served: Served
    received: Received
    unread: bool  # whether a body is unread, which makes the next request unreadable

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.received = Received(self.connection, IDLE_TIMEOUT_S, REQUEST_TIMEOUT_S)
        self.rfile = io.BufferedReader(self.received)

    def finish(self) -> None:
        super().finish()
        linger(self.connection)

    def handle_one_request(self) -> None:
        self.close_connection, self.unread = True, True
        self.command, self.request_version = "GET", self.protocol_version
        self.requestline = ""  # required by the log, which is disabled
        self.server.connections.waits(self.connection)
        try:
            head = read_head(self.rfile)
            if head is not None:
                self._serve(head)
                self.received.next_request()
        except HeadError as error:
            self.command = error.method
            self._send(error.status, f"{error}\n".encode())
        except TimeoutError:
            self.close_connection = True

    def _serve(self, head: Head) -> None:
        self.command, self.path, self.headers = head.method, head.target, head.headers
        self.request_version, self.unread = head.version, head.has_body
        self.close_connection = not head.keeps_alive
        path, _, target = self.path.partition("?")
        is_health = path == "/metrics" or path.startswith("/health/")
        reason = intrusion(
            self.headers,
            self.served.names,
            self.served.host,
            linked=is_page(path) and self.command != "POST",
            by_number=is_health,
        )
        if reason is not None:
            self._send(HTTPStatus.FORBIDDEN, f"{reason}\n".encode())
        elif is_health and self.command != "POST":
            self._tell_health(path)
        elif self.command != "POST" and (path == "/ping" or (path == "/" and not target)):
            self._send(HTTPStatus.OK, b"Ok.\n")
        elif path == "/rebuild" and self.served.rebuilds is not None:
            self._rebuild(self.served.rebuilds, parameters_of(target))
        elif path.split("/")[1] == "dashboards":
            self._show_dashboards(path)
        elif path != "/":
            self._send(HTTPStatus.NOT_FOUND, b"There is no handler for this path.\n")
        else:
            self._answer_query(parameters_of(target))

    def _tell_health(self, path: str) -> None:
        if path == "/metrics":
            self._send(HTTPStatus.OK, generate_latest(), {"Content-Type": CONTENT_TYPE_LATEST})
            return
        wall, name = self.served.wall, path.rpartition("/")[2]
        good, text = {
            "live": (True, name),
            "ready": (self.served.is_ready(), name if self.served.is_ready() else f"not {name}"),
            "wall": (wall.stands, wall.sentence),
        }.get(name, (None, "There is no handler for this path."))
        bad = HTTPStatus.NOT_FOUND if good is None else HTTPStatus.SERVICE_UNAVAILABLE
        self._send(HTTPStatus.OK if good else bad, f"{text}\n".encode())

    def _answer_query(self, given: dict[str, str]) -> None:
        refusal = self._refusal(given)
        if refusal is not None:
            self._send(refusal.status, refusal.body, refusal.headers)

    def _refusal(self, given: dict[str, str]) -> Page | None:
        """Answer a query, or return the refusal. It is sent when the answer, which its exception
        refers to, is no longer in memory."""
        query_id = given.get("query_id") or str(uuid.uuid4())
        try:
            name, password = credentials(self.headers, given)
            role, is_known = self.served.users.role_of(name, password), bool(password)
            query = query_of(given, self._body(role), may_write=role is Role.ADMIN)
            with QUERY_SECONDS.time():
                answer = self._hello(query, given, is_known) or self._ask(query, is_known)
            with self.served.responses.held(0 if is_known else len(answer.data)):
                self._send_answer(answer, given, query_id)
        except BodyError as error:
            return Page(HTTPStatus.BAD_REQUEST, f"{error}\n".encode())
        except EngineError as error:
            REFUSED.labels(str(error.code)).inc()
            headers = {"X-ClickHouse-Exception-Code": str(error.code)}
            return Page(status_of(error.code), f"{error}\n".encode(), headers)
        return None

    def _send_answer(self, answer: Answer, given: Mapping[str, str], query_id: str) -> None:
        wanted = given.get("enable_http_compression") == "1" or "client_protocol_version" in given
        data, encoding = compressed(answer.data, self.headers, wanted)
        self._send(HTTPStatus.OK, data, answer_headers(answer, query_id) | _encoding(encoding))

    def _ask(self, query: Query, is_known: bool) -> Answer:
        """The engine's answer. The query is cancelled if the client disconnects."""
        query, engine = replace(query, id=uuid.uuid4().hex, is_known=is_known), self.served.engine

        def end() -> None:
            with suppress(EngineError):
                engine.cancel(query.id)

        with (
            self.server.connections.kept(self.connection, is_known),
            self.served.departures.watching(self.connection, end),
        ):
            return engine.answer(query)

    def _show_dashboards(self, path: str) -> None:
        """Serve the dashboards page and its queries to clients with read access; a browser is asked
        to log in."""
        try:
            name, password = credentials(self.headers, {})
            self.served.users.role_of(name, password)
            request = Request(
                self.command,
                path,
                self.headers,
                self._read,
                lambda query: self._ask(query, bool(password)),
            )
            page = self.served.dashboards.answer(request)
        except BodyError as error:
            page = Page(HTTPStatus.BAD_REQUEST, f"{error}\n".encode(), {"Content-Type": TEXT})
        except EngineError as error:
            challenge = {"WWW-Authenticate": 'Basic realm="Tidegauge, user reader"'}
            page = Page(HTTPStatus.UNAUTHORIZED, f"{error}\n".encode(), challenge)
        self._send(page.status, page.body, page.headers)

    def _rebuild(self, rebuilds: Rebuilds, given: dict[str, str]) -> None:
        """POST requests a rebuild, GET returns its status. Both require the admin."""
        try:
            role = self.served.users.role_of(*credentials(self.headers, given))
        except EngineError:
            role = Role.READER
        if role is not Role.ADMIN:
            self._send(HTTPStatus.FORBIDDEN, b"Only the admin can rebuild.\n")
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
            return self._read(MAX_INSERT_BYTES)
        return self._read(MAX_QUERY_BYTES)

    def _read(self, limit: int) -> bytes:
        """The body. Raises BodyError, after which the connection must be closed."""
        if self.headers.get("Expect") and self.request_version != "HTTP/1.0":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = read_body(self.rfile, self.headers, limit)
        self.unread = False
        return body

    def _hello(self, query: Query, given: Mapping[str, str], is_known: bool) -> Answer | None:
        """The answer to clickhouse-go's first query; None for any other query."""
        version = given.get("client_protocol_version", "")
        number = int(version) if version.isdecimal() and len(version) < VERSION_DIGITS else 0
        if not is_hello(query.text, query.output_format, number):
            return None
        engine = self._ask(Query("SELECT version()", "TSVRaw"), is_known).data.decode().strip()
        return Answer(hello(socket.gethostname(), engine, number), "Native", 1, 1, 0.0)

    def _send(
        self, status: HTTPStatus, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        self.close_connection = self.close_connection or self.unread
        self.send_response(status)
        for name, value in (NO_PAGE | dict(headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close" if self.close_connection else "keep-alive")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are counted, not logged: they may contain passwords."""


def _encoding(name: str) -> dict[str, str]:
    return {"Content-Encoding": name} if name else {}
