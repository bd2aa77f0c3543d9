"""An aiohttp server in a thread of its own, whose clients can neither stay forever nor crowd others
out.

A request must arrive completely within REQUEST_TIMEOUT_S, counted from the start of the connection
or, for later requests, from its first byte, which must arrive within IDLE_TIMEOUT_S. There are at
most CONNECTIONS connections. At the limit, a new one replaces the one that has kept the store
waiting for the longest time; connections whose clients wait for the store are not replaced.
"""

import asyncio
import select
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from services.runtime.health import PortTakenError

IDLE_TIMEOUT_S: Final = 30.0
REQUEST_TIMEOUT_S: Final = 30.0
CONNECTIONS: Final = 256
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
        self.expects(REQUEST_TIMEOUT_S)
        self._server.enter(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.leave(self)
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_idle:
            self.expects(REQUEST_TIMEOUT_S)
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

    def __init__(self, handler: Handler, refusal: Refusal, most: int) -> None:
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
        self._most = most
        self._open: set[Connection] = set()

    def __call__(self) -> RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)

    def enter(self, connection: Connection) -> None:
        """Count a connection, and close another one if there are too many."""
        if len(self._open) >= self._most:
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
) -> HttpServer:
    """Serve requests. Raises PortTakenError."""
    loop = asyncio.new_event_loop()

    async def open_server() -> asyncio.AbstractServer:
        made = _Server(handler, refusal, CONNECTIONS)
        return await loop.create_server(made, host, port, backlog=BACKLOG, reuse_address=True)

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
