"""ClickHouse's HTTP interface, as its clients use it.

Also `/health/live`, `/health/ready`, `/health/wall`, `/metrics` and `/dashboards/`. Requests are
served in one event loop (services/store/api/http_server.py), queries run in threads, and the engine
bounds them. A result is complete before the first byte of it is sent, so an error is always a
status.
"""

import asyncio
import json
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Final, TypeVar

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest

from services.store.api.http_request import (
    BodyError,
    HeadError,
    accepted,
    check_head,
    content_type_of,
    database_of,
    encoded,
    form_of,
    headers_of,
    intrusion,
    parameters_of,
    query_of,
    read_body,
    status_of,
    summary_of,
)
from services.store.api.http_server import (
    LIMITS,
    Connection,
    HttpLimits,
    HttpServer,
    Session,
    Sessions,
    Slots,
    connection_of,
    listen,
    send,
)
from services.store.api.native import BlockError, framed, hello, is_hello, unframed
from services.store.dashboards.site import DashboardsSite, Page, Request, is_page
from services.store.engine import Answer, EngineError, Query, SqlEngine
from services.store.engines.wall import NOT_RAISED, Wall
from services.store.policy.permissions import BOUNDED_SETTINGS, quoted
from services.store.policy.query_policy import JUDGE
from services.store.policy.reader_views import NOTHING, ViewQueries
from services.store.policy.sql_statements import (
    killed_query,
    settings_of,
    used_database,
    want_tighter,
)
from services.store.policy.sql_tokens import TextError
from services.store.projection.rebuild import Rebuilds
from services.store.settings import StoreSettings, bounds
from services.store.users import ANONYMOUS, Role, Users, credentials

INSERT_TIMEOUT_S: Final = 600.0  # for the body of an admin's request
LOOK_S: Final = 0.25
MAX_QUERY_BYTES: Final = 256 * 1024
MAX_INSERT_BYTES: Final = 128 * 1024 * 1024
MIN_COMPRESSED_BYTES: Final = 1024
VERSION_DIGITS: Final = 10
QUERY_PATHS: Final = ("/", "/query")
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
Result = TypeVar("Result")


@dataclass(frozen=True)
class Served:
    """What is served, the users, and the names accepted as Host."""

    engine: SqlEngine
    users: Users
    is_ready: Callable[[], bool]
    host: str
    names: tuple[str, ...]
    rebuilds: Rebuilds | None
    dashboards: DashboardsSite
    wall: Wall


def serve_sql(
    settings: StoreSettings,
    users: Users,
    engine: SqlEngine,
    is_ready: Callable[[], bool],
    *,
    rebuilds: Rebuilds | None = None,
    wall: Wall = NOT_RAISED,
    limits: HttpLimits = LIMITS,
) -> HttpServer:
    """Start serving in daemon threads. Raises PortTakenError.

    rebuilds: handles the admin's `POST /rebuild`; None if rebuilds are unavailable.
    """
    WALL.set(wall.stands)
    served = Served(
        engine=engine,
        users=users,
        is_ready=is_ready,
        host=settings.host,
        names=settings.allowed_hosts,
        rebuilds=rebuilds,
        dashboards=DashboardsSite(settings.dashboards_dir),
        wall=wall,
    )
    interface = _Interface(served, settings, limits)
    return listen(settings.host, settings.port("store"), interface.handle, _refusal, limits)


def _refusal(status: HTTPStatus, sentence: str) -> web.Response:
    """The response to what is not a request."""
    response = web.Response(status=status, body=f"{sentence}\n".encode(), headers=NO_PAGE)
    response.force_close()
    return response


@dataclass(frozen=True)
class Client:
    """Who sends a request: the user's role and name, and whether it has given a password."""

    role: Role
    name: str
    is_known: bool


class _Interface:
    """Answers requests."""

    def __init__(self, served: Served, settings: StoreSettings, limits: HttpLimits) -> None:
        self._served = served
        self._sessions = Sessions()
        self.views = ViewQueries()
        self.bounds = bounds(settings, {})
        self._running: dict[str, tuple[str, str]] = {}
        most = max(1, limits.connections // 2)
        self._slots = Slots(settings.query_slots, settings.query_wait_seconds, most)
        self.responses = _Responses(settings.query_slots * settings.query_max_result_bytes)
        self._queries = ThreadPoolExecutor(self._slots.count, "query")
        self._others = ThreadPoolExecutor(2, "http")

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to a request, which has been sent."""
        try:
            check_head(request)
            return await self._route(request)
        except HeadError as error:
            return await _send(request, Page(error.status, f"{error}\n".encode()), closes=True)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, target = request.raw_path.partition("?")
        is_post = request.method == "POST"
        is_health = path == "/metrics" or path.startswith("/health/")
        reason = intrusion(
            request.headers,
            self._served.names,
            self._served.host,
            linked=is_page(path) and not is_post,
            by_number=is_health,
        )
        if reason is not None:
            return await _send(request, Page(HTTPStatus.FORBIDDEN, f"{reason}\n".encode()))
        if is_health and not is_post:
            return await _send(request, self._health(path))
        if not is_post and (path in ("/ping", "/replicas_status") or (path == "/" and not target)):
            return await _send(request, Page(HTTPStatus.OK, b"Ok.\n"))
        if path in QUERY_PATHS:
            return await _HttpQuery(self, request, target).answered()
        page = Page(HTTPStatus.NOT_FOUND, b"There is no handler for this path.\n")
        if path == "/rebuild" and self._served.rebuilds is not None:
            page = self._rebuild(request, self._served.rebuilds, target)
        elif path.split("/")[1] == "dashboards":
            page = await self._dashboards(request, path)
        return await _send(request, page)

    def _health(self, path: str) -> Page:
        if path == "/metrics":
            return Page(HTTPStatus.OK, generate_latest(), {"Content-Type": CONTENT_TYPE_LATEST})
        wall, name, ready = self._served.wall, path.rpartition("/")[2], self._served.is_ready()
        good, text = {
            "live": (True, name),
            "ready": (ready, name if ready else f"not {name}"),
            "wall": (wall.stands, wall.sentence),
        }.get(name, (None, "There is no handler for this path."))
        bad = HTTPStatus.NOT_FOUND if good is None else HTTPStatus.SERVICE_UNAVAILABLE
        return Page(HTTPStatus.OK if good else bad, f"{text}\n".encode())

    async def _dashboards(self, request: web.BaseRequest, path: str) -> Page:
        """The dashboards page and its queries, for clients with read access; a browser is asked to
        log in."""
        try:
            client = self.client(request, {})
            asked = Request(
                request.method,
                path,
                request.headers,
                partial(read_body, request),
                lambda query: self.ask(query, connection_of(request), client),
            )
            return await self._served.dashboards.answer(asked)
        except BodyError as error:
            return Page(HTTPStatus.BAD_REQUEST, f"{error}\n".encode(), {"Content-Type": TEXT})
        except EngineError as error:
            challenge = {"WWW-Authenticate": 'Basic realm="Tidegauge, user reader"'}
            return Page(HTTPStatus.UNAUTHORIZED, f"{error}\n".encode(), challenge)

    def _rebuild(self, request: web.BaseRequest, rebuilds: Rebuilds, target: str) -> Page:
        """POST requests a rebuild, GET returns its status. Both require the admin."""
        try:
            given = parameters_of(target)
            role = self.client(request, given).role
        except EngineError:
            role = Role.READER
        if role is not Role.ADMIN:
            return Page(HTTPStatus.FORBIDDEN, b"Only the admin can rebuild.\n")
        if request.method == "POST":
            rebuilds.ask(force=given.get("force") == "1")
        body = json.dumps(rebuilds.status.as_json()) + "\n"
        return Page(HTTPStatus.OK, body.encode(), {"Content-Type": "application/json"})

    def client(self, request: web.BaseRequest, given: Mapping[str, str]) -> Client:
        """Who sends a request. Raises EngineError."""
        name, password = credentials(request.headers, given)
        role = self._served.users.role_of(name, password)
        return Client(role, name or ANONYMOUS, self._served.users.is_known(name))

    def session(self, client: Client, given: Mapping[str, str]) -> Session:
        """The session of a request. Raises EngineError."""
        return self._sessions.of(client.name, given)

    async def ask(
        self, query: Query, connection: Connection, client: Client, name: str = ""
    ) -> Answer:
        """The engine's answer. The query is cancelled if the client disconnects. name: the client's
        id for it."""
        query = replace(query, id=uuid.uuid4().hex, is_known=client.is_known)
        self._running[query.id] = (client.name, name)
        try:
            return await self._asked(query, connection, client)
        finally:
            del self._running[query.id]

    async def kill(self, client: Client, name: str) -> bool:
        """Cancel the queries to which a client has given this id, and tell whether there are any;
        an empty one is that of none."""
        running = self._running.items() if name else ()
        result = [each for each, whose in running if whose == (client.name, name)]
        for each in result:
            await self.beside(partial(self._served.engine.cancel, each))
        return bool(result)

    async def _asked(self, query: Query, connection: Connection, client: Client) -> Answer:
        connection.serves()
        loop, engine = asyncio.get_running_loop(), self._served.engine
        begun_s = loop.time()
        async with self._slots.taken(client.is_known):
            if loop.time() - begun_s > LOOK_S and connection.is_left():
                raise ConnectionResetError
            result = loop.run_in_executor(self._queries, engine.answer, query)
            was_left = False
            while not (await asyncio.wait([result], timeout=LOOK_S))[0]:
                if was_left:  # not at once: it may only have shut down its sending side
                    with suppress(EngineError):
                        await self.beside(lambda: engine.cancel(query.id))
                was_left = connection.is_left()
            return result.result()

    async def beside(self, work: Callable[[], Result]) -> Result:
        """Do something that takes a while, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._others, work)


class _HttpQuery:
    """One request with a query."""

    def __init__(self, interface: _Interface, request: web.BaseRequest, target: str) -> None:
        self._interface = interface
        self._request = request
        self._target = target
        self._given: dict[str, str] = {}
        self._headers: dict[str, str] = {}
        self._is_in = False  # whether the client has been let in

    async def answered(self) -> web.StreamResponse:
        """Answer the query. A refusal is sent when the answer, to which its exception refers, is no
        longer in memory."""
        refusal = None
        try:
            return await self._send_answer()
        except (BodyError, BlockError) as error:
            page = Page(HTTPStatus.BAD_REQUEST, f"{error}\n".encode())
            return await _send(self._request, page, closes=isinstance(error, BodyError))
        except EngineError as error:
            REFUSED.labels(str(error.code)).inc()
            refusal = error.code, f"{error}\n".encode()
        code, text = refusal
        headers = self._headers | {"X-ClickHouse-Exception-Code": str(code)}
        body, encoding = await self._packed(text, is_readable=True)
        return await _send(self._request, Page(status_of(code), body, headers | encoding))

    async def _send_answer(self) -> web.StreamResponse:
        given = self._given = parameters_of(self._target)
        query_id = given.get("query_id") or str(uuid.uuid4())
        self._headers = headers_of(query_id, Query.output_format, "UTC")
        client = self._interface.client(self._request, given)
        self._is_in = True
        session = self._interface.session(client, given)
        query = await self._query(client, session)
        query = self._with_chosen(query, session)
        timezone = query.settings.get("session_timezone", "UTC")
        self._headers = headers_of(query_id, query.output_format, timezone)
        with QUERY_SECONDS.time():
            answer = await self._answer(query, client)
        self._headers = headers_of(query_id, answer.output_format, timezone)
        with self._interface.responses.held(0 if client.is_known else len(answer.data)):
            body, encoding = await self._packed(answer.data)
            headers = self._headers | encoding | _statistics(answer, given)
            headers["Content-Type"] = content_type_of(answer.output_format)
            return await _send(self._request, Page(HTTPStatus.OK, body, headers))

    async def _query(self, client: Client, session: Session) -> Query:
        """The query of the request. Raises EngineError, BodyError, BlockError."""
        request, may_write = self._request, client.role is Role.ADMIN
        body = b""
        if request.method == "POST":
            if may_write:
                connection_of(request).expects(INSERT_TIMEOUT_S)
            limit = MAX_INSERT_BYTES if may_write else MAX_QUERY_BYTES
            body = await read_body(request, limit)
            form = form_of(body, request.headers.get("Content-Type", ""))
            if form is not None:
                own = {name: form[name] for name in form if name not in ("user", "password")}
                self._given, body = self._given | own, b""
            elif self._given.get("decompress") == "1":
                body = await self._interface.beside(partial(unframed, body, limit))
        query = query_of(self._given, body, may_write, request.headers)
        is_named = "X-ClickHouse-Database" in request.headers or "database" in self._given
        database = query.database if is_named else session.database or query.database
        settings = session.settings | dict(query.settings)
        return replace(query, settings=settings, database=database)

    def _with_chosen(self, query: Query, session: Session) -> Query:
        """The query, or one without a result in place of SET and USE, whose choice the session
        keeps. Raises EngineError."""
        try:
            chosen, used = settings_of(query.text), used_database(query.text)
        except TextError:
            return query  # is refused when it is judged
        if chosen is not None:
            want_tighter(chosen, self._interface.bounds)
            session.choose(
                JUDGE.settings(replace(query, settings=chosen), BOUNDED_SETTINGS)
                | {name: value for name, value in chosen.items() if name in BOUNDED_SETTINGS}
            )
        elif used is not None:
            session.database = database_of(used)
        else:
            return query
        return replace(query, text=NOTHING, settings={})

    async def _answer(self, query: Query, client: Client) -> Answer:
        connection, ask = connection_of(self._request), self._interface.ask
        killed = killed_query(query.text)
        if killed is not None and client.role is Role.READER:
            is_running = await self._interface.kill(client, killed)
            query = replace(query, text=_as_killed(client, killed, is_running))
        elif client.role is Role.READER:
            query = replace(query, text=self._interface.views.in_place_of(client.name, query.text))
        number = _version(self._given)
        if not is_hello(query.text, query.output_format, number):
            return await ask(query, connection, client, self._given.get("query_id", ""))
        result = await ask(Query("SELECT version()", "TSVRaw"), connection, client)
        data = hello(socket.gethostname(), result.data.decode().strip(), number)
        return Answer(data, "Native", 1, 1, 0.0)

    async def _packed(
        self, data: bytes, *, is_readable: bool = False
    ) -> tuple[bytes, dict[str, str]]:
        """A body in ClickHouse's framing and in a content encoding, if the request asks for them,
        and the header that names the latter. is_readable: as in `framed`."""
        given = self._given
        if self._is_in and given.get("compress") == "1":
            blocks = partial(framed, data, is_readable=is_readable)
            data = await self._interface.beside(lambda: b"".join(blocks()))
        # Some clients that ask for it decode whatever comes.
        is_asked = given.get("enable_http_compression") == "1"
        is_worth_it = "client_protocol_version" in given and len(data) >= MIN_COMPRESSED_BYTES
        encoding = accepted(self._request.headers) if is_asked or is_worth_it else ""
        if not encoding:
            return data, {}
        packed = await self._interface.beside(partial(encoded, data, encoding))
        return packed, {"Content-Encoding": encoding}


class _Responses:
    """Bounds the bytes of the responses that clients without a password are receiving. A slow
    client holds its response in memory, but no slot."""

    def __init__(self, most: int) -> None:
        self._left = most

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """While the block runs, a response of this size is being sent. Raises EngineError if there
        are too many."""
        if size > self._left:
            raise EngineError("Code: 202. DB::Exception: Too many responses are being sent.")
        self._left -= size
        try:
            yield
        finally:
            self._left += size


def _statistics(answer: Answer, given: Mapping[str, str]) -> dict[str, str]:
    summary = summary_of(answer)
    progress = given.get("send_progress_in_http_headers") == "1"
    return {"X-ClickHouse-Summary": summary} | (
        {"X-ClickHouse-Progress": summary} if progress else {}
    )


def _as_killed(client: Client, name: str, was_running: bool) -> str:
    """A query with the result of KILL QUERY."""
    columns = {"kill_status": "waiting", "query_id": name, "user": client.name, "query": ""}
    written = ", ".join(f"{quoted(value)} AS {column}" for column, value in columns.items())
    return f"SELECT {written} WHERE {int(was_running)}"


def _version(given: Mapping[str, str]) -> int:
    version = given.get("client_protocol_version", "")
    return int(version) if version.isdecimal() and len(version) < VERSION_DIGITS else 0


async def _send(request: web.BaseRequest, page: Page, closes: bool = False) -> web.StreamResponse:
    unread = not request.content.is_eof()
    return await send(request, page.status, page.body, NO_PAGE | page.headers, closes or unread)
