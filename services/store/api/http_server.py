"""An aiohttp server in a thread of its own, whose clients can neither stay forever nor crowd others
out.

A request must arrive completely within `request_s`, counted from the start of the connection
or, for later requests, from its first byte, which must arrive within IDLE_TIMEOUT_S. There are at
most `connections`. At the limit, a new one replaces the one that has kept the store
waiting for the longest time; connections whose clients wait for the store are not replaced.

`Slots` bounds the number of concurrent queries and of those that wait. `Sessions` keeps the
settings and the database that earlier requests of a session have chosen by SET and USE. A session
belongs to one user. Unlike in ClickHouse, requests of one session may run at the same time.
"""

import asyncio
import select
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from services.runtime.serving import PortTakenError
from services.store.engine import EngineError

IDLE_TIMEOUT_S: Final = 30.0
BACKLOG: Final = 128
LINGER_S: Final = 0.5
STOP_S: Final = 5.0
PIECE_BYTES: Final = 256 * 1024
MAX_TARGET_BYTES: Final = 64 * 1024
MAX_HEADER_BYTES: Final = 16 * 1024
MAX_HEADERS: Final = 100
MAX_HEAD_BYTES: Final = 256 * 1024
FULL: Final = b"Code: 202. DB::Exception: Too many connections; ask again in a moment.\n"
ANSWER: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=UTF-8\r\n"
    b"X-ClickHouse-Exception-Code: 202\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(FULL), FULL)
)
# The client has closed or stopped sending. Systems without this event only report a close once
# everything sent before it has been read.
_GONE: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR | select.POLLNVAL

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
# The response to what cannot be read as a request: from its status and a sentence.
Refusal = Callable[[HTTPStatus, str], web.Response]
FEWEST: Final = 2
BUSY: Final = (
    "Code: 202. DB::Exception: Too many simultaneous queries. (TOO_MANY_SIMULTANEOUS_QUERIES)"
)
MOST_SESSIONS: Final = 1000
MOST_SETTINGS: Final = 200
MOST_BYTES: Final = 64 * 1024
DEFAULT_S: Final = 60
LONGEST_S: Final = 3600


@dataclass(frozen=True)
class HttpLimits:
    """connections: open at the same time. request_s: time in which a request must arrive."""

    connections: int = 256
    request_s: float = 30.0


LIMITS: Final = HttpLimits()


class Connection(RequestHandler):
    """One connection, with its clock."""

    def __init__(self, server: "_Server", **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self._clock: asyncio.TimerHandle | None = None
        self._is_idle = False
        self._head_bytes = 0
        self.answered = 0
        self.waiting_since_s: float | None = 0.0  # None while its client waits for the store

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.expects(self._server.limits.request_s)
        self._server.enter(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.leave(self)
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_idle:
            self.expects(self._server.limits.request_s)
        seen = self._request_count
        super().data_received(data)
        self._head_bytes = 0 if self._request_count > seen else self._head_bytes + len(data)
        if self._head_bytes > MAX_HEAD_BYTES and self.answered == self._request_count:
            self.force_close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client that has only shut down its sending side still gets its answer."""
        if self.answered == self._request_count:
            return False
        self.close()
        return True

    def expects(self, seconds: float, idle: bool = False) -> None:
        """From now on the store waits for the client, at most this long. idle: for the first byte
        of a request."""
        self._stop_clock()
        self._is_idle = idle
        self.waiting_since_s = self._loop.time()
        self._clock = self._loop.call_later(seconds, self.force_close)

    def serves(self) -> None:
        """From now on the client waits for the store."""
        self._stop_clock()
        self.waiting_since_s = None

    def is_left(self) -> bool:
        """Whether the client has disconnected, even if sent data has not been read yet."""
        if self.transport is None:
            return True
        connection: socket.socket = self.transport.get_extra_info("socket")
        poll = select.poll()
        try:
            poll.register(connection.fileno(), _GONE)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True

    def turn_away(self) -> None:
        """Answer that there are too many connections."""
        if self.transport is not None:
            self.transport.write(ANSWER)  # type: ignore[attr-defined]
        self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """The response to a malformed request, or after a defect, which is logged."""
        if isinstance(exc, ConnectionError):  # the client has left
            raise exc
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log_exception("request failed", exc_info=exc)
            return self._server.refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "The store failed.")
        if isinstance(exc, LineTooLong):
            too_long = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            return self._server.refusal(too_long, "The target or a header is too long.")
        return self._server.refusal(HTTPStatus.BAD_REQUEST, "This is not a valid request.")

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
        self._clock = None


class _Server(web.Server):
    """Makes connections, and bounds their number."""

    def __init__(self, handler: Handler, refusal: Refusal, limits: HttpLimits) -> None:
        super().__init__(
            handler,
            keepalive_timeout=10 * IDLE_TIMEOUT_S,  # the clock of a connection is shorter
            lingering_time=LINGER_S,
            access_log=None,
            auto_decompress=False,
            max_line_size=MAX_TARGET_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
        )
        self.refusal = refusal
        self.limits = limits
        self._open: set[Connection] = set()

    def __call__(self) -> RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)

    def enter(self, connection: Connection) -> None:
        """Count a connection, and close another one if there are too many."""
        if len(self._open) >= self.limits.connections:
            waiting = [each for each in self._open if each.waiting_since_s is not None]
            if not waiting:
                connection.turn_away()
                return
            oldest = min(waiting, key=lambda each: each.waiting_since_s or 0.0)
            self.leave(oldest)
            oldest.force_close()
        self._open.add(connection)

    def leave(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._open.discard(connection)


class HttpServer:
    """A server that runs until `shutdown`, in a daemon thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: asyncio.AbstractServer) -> None:
        self._loop = loop
        self._server = server
        self._thread = threading.Thread(target=loop.run_forever, name="http", daemon=True)
        self._thread.start()

    def shutdown(self) -> None:
        """Stop listening and serving. What has not been answered within STOP_S never is."""
        with_loop = asyncio.run_coroutine_threadsafe(self._stop(), self._loop)
        with_loop.add_done_callback(lambda _done: self._loop.call_soon_threadsafe(self._loop.stop))
        self._thread.join(STOP_S)

    async def _stop(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_S)


def listen(
    host: str,
    port: int,
    handler: Handler,
    refusal: Refusal,
    limits: HttpLimits = LIMITS,
) -> HttpServer:
    """Serve requests. Raises PortTakenError."""
    loop = asyncio.new_event_loop()

    async def open_server() -> asyncio.AbstractServer:
        server = _Server(handler, refusal, limits)
        return await loop.create_server(server, host, port, backlog=BACKLOG, reuse_address=True)

    try:
        return HttpServer(loop, loop.run_until_complete(open_server()))
    except OSError as error:
        loop.close()
        raise PortTakenError(f"port {port} on {host} is taken: {error.strerror}") from error


def connection_of(request: web.BaseRequest) -> Connection:
    """The connection of a request."""
    connection = request.protocol
    assert isinstance(connection, Connection)
    return connection


async def send(
    request: web.BaseRequest,
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    closes: bool = False,
) -> web.StreamResponse:
    """Send a whole response. The client must take a piece of it every IDLE_TIMEOUT_S. closes:
    whether the connection is closed afterwards."""
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = len(body)
    connection = connection_of(request)
    if closes:
        response.force_close()
    connection.expects(IDLE_TIMEOUT_S)
    await response.prepare(request)
    view = memoryview(body)
    if request.method != "HEAD":
        for begin in range(0, len(view), PIECE_BYTES):
            connection.expects(IDLE_TIMEOUT_S)
            await response.write(view[begin : begin + PIECE_BYTES])
    await response.write_eof()
    connection.answered += 1
    connection.expects(IDLE_TIMEOUT_S, idle=True)
    return response


class Slots:
    """Slots for `count` queries, at least two. Used in one event loop.

    Others wait up to `wait_s` seconds. Clients without a password leave the last slot free, so that
    they cannot block the console, and at most `most_waiting` of them run or wait.
    """

    def __init__(self, count: int, wait_s: float, most_waiting: int) -> None:
        self.count = max(FEWEST, count)
        self._wait_s = wait_s
        self._all = asyncio.Semaphore(self.count)
        self._anonymous = asyncio.Semaphore(self.count - 1)
        self._places = most_waiting

    @asynccontextmanager
    async def taken(self, is_known: bool) -> AsyncIterator[None]:
        """Hold a slot while the block runs. Raises EngineError if none becomes free in time."""
        async with AsyncExitStack() as held:
            if not is_known:
                if self._places == 0:
                    raise EngineError(BUSY)
                self._places -= 1
                held.callback(self._leave)
            try:
                async with asyncio.timeout(self._wait_s):
                    if not is_known:
                        await held.enter_async_context(self._anonymous)
                    await held.enter_async_context(self._all)
            except TimeoutError:
                raise EngineError(BUSY) from None
            yield

    def _leave(self) -> None:
        self._places += 1


@dataclass
class Session:
    """What a session has chosen. database: empty if it has not chosen any."""

    until_s: float = 0.0
    database: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    def choose(self, settings: Mapping[str, str]) -> None:
        """Remember settings for later requests. Raises EngineError."""
        both = self.settings | dict(settings)
        if len(both) > MOST_SETTINGS or sum(map(len, both.values())) > MOST_BYTES:
            raise EngineError("Code: 36. DB::Exception: A session has too many settings.")
        self.settings = both


class Sessions:
    """The sessions of all users. At the limit, a new one replaces the one that expires first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[tuple[str, str], Session] = {}

    def of(self, user: str, given: Mapping[str, str]) -> Session:
        """The session of a request, from its parameters; one of its own if it names none. A request
        may be the last one of its session. Raises EngineError."""
        name = given.get("session_id", "")
        if not name:
            return Session()
        now_s = self._clock()
        self._known = {key: item for key, item in self._known.items() if item.until_s > now_s}
        key = (user, name)
        if key not in self._known and given.get("session_check") == "1":
            raise EngineError("Code: 372. DB::Exception: Session not found. (SESSION_NOT_FOUND)")
        session = self._known.setdefault(key, Session())
        session.until_s = now_s + _timeout_s(given.get("session_timeout", ""))
        if len(self._known) > MOST_SESSIONS:
            others = (each for each in self._known if each != key)
            del self._known[min(others, key=lambda each: self._known[each].until_s)]
        if given.get("close_session") == "1":
            del self._known[key]
        return session


def _timeout_s(asked: str) -> int:
    if not asked:
        return DEFAULT_S
    if not (asked.isascii() and asked.isdecimal() and len(asked) < 10):
        raise EngineError(
            f"Code: 664. DB::Exception: Invalid session timeout: '{asked[:40]}'."
            " (INVALID_SESSION_TIMEOUT)"
        )
    if int(asked) > LONGEST_S:
        raise EngineError(
            f"Code: 664. DB::Exception: Session timeout '{asked}' is larger than {LONGEST_S}."
            " (INVALID_SESSION_TIMEOUT)"
        )
    return int(asked)
